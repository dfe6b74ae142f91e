#include "worker/service/grpc_blob_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "common/limits.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/membership.grpc.pb.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kCallTimeout{60};

}  // namespace

class GrpcBlobClient::Impl {
 public:
  Impl(const Transport& transport, const std::string& coordinator)
      : channel(transport.MakeChannel(coordinator)),
        stub(v1::MembershipService::NewStub(channel)) {}
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::MembershipService::Stub> stub;
};

GrpcBlobClient::GrpcBlobClient(const Transport& transport, const std::string& coordinator)
    : impl_(std::make_unique<Impl>(transport, coordinator)) {}
GrpcBlobClient::~GrpcBlobClient() = default;

absl::Status GrpcBlobClient::Fetch(const std::string& sha256, uint64_t offset, const ChunkFn& sink,
                                   Cancellation* cancel) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  v1::FetchBlobRequest request;
  request.set_sha256(sha256);
  request.set_offset(offset);
  const auto reader = impl_->stub->FetchBlob(&context, request);
  const Cancellation::Waker waker(cancel, [&context] { context.TryCancel(); });
  v1::FetchBlobChunk chunk;
  absl::Status sunk;
  while (sunk.ok() && reader->Read(&chunk)) {
    if (chunk.data().size() > kBlobChunkBytes) {
      sunk =
          Error(absl::StatusCode::kInvalidArgument, "BAD_CHUNK", "a chunk of weights is too long")
              .Limit("chunk_bytes=" + std::to_string(kBlobChunkBytes));
    } else {
      sunk = sink(chunk.data());
    }
  }
  if (!sunk.ok()) {
    context.TryCancel();
  }
  const absl::Status status = FromGrpc(reader->Finish());
  return sunk.ok() ? status : sunk;
}

}  // namespace strata
