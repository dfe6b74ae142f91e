#include "worker/service/grpc_weight_sources.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <map>
#include <utility>

#include "common/limits.h"
#include "common/mutex.h"
#include "common/names.h"
#include "common/rpc/address.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/membership.grpc.pb.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kCallTimeout{60};
constexpr int kMostSources = 8;
// Workers whose connections are kept; with more, all begin anew.
constexpr size_t kMostPeers = 64;

absl::Status CheckChunk(const v1::FetchBlobChunk& chunk) {
  if (chunk.data().size() <= kBlobChunkBytes) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, "BAD_CHUNK", "a chunk of weights is too long")
      .Limit("chunk_bytes=" + std::to_string(kBlobChunkBytes));
}

// Hands on what comes, until `take` returns an error.
template <typename Stub>
absl::Status ReadChunks(Stub* stub, const v1::FetchBlobRequest& request,
                        std::chrono::milliseconds timeout, Cancellation* cancel,
                        const std::function<absl::Status(const v1::FetchBlobChunk&)>& take) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  const auto reader = stub->FetchBlob(&context, request);
  const Cancellation::Waker waker(cancel, [&context] { context.TryCancel(); });
  v1::FetchBlobChunk chunk;
  absl::Status taken;
  while (taken.ok() && reader->Read(&chunk)) {
    taken = CheckChunk(chunk);
    if (taken.ok()) {
      taken = take(chunk);
    }
  }
  if (!taken.ok()) {
    context.TryCancel();
  }
  const absl::Status status = FromGrpc(reader->Finish());
  return taken.ok() ? status : taken;
}

v1::FetchBlobRequest RequestBy(const LinkHandler::Identity& self, const std::string& sha256,
                               uint64_t offset) {
  v1::FetchBlobRequest request;
  request.set_sha256(sha256);
  request.set_offset(offset);
  request.set_node(self.node);
  request.set_incarnation(self.incarnation);
  return request;
}

}  // namespace

class GrpcWeightSources::Impl {
 public:
  using PeerStub = v1::WeightsService::Stub;

  Impl(const Transport& transport, const std::string& coordinator,
       std::function<LinkHandler::Identity()> self)
      : self(std::move(self)),
        channel(transport.MakeChannel(coordinator)),
        stub(v1::MembershipService::NewStub(channel)),
        transport_(transport) {}

  std::shared_ptr<PeerStub> Peer(const std::string& address) {
    MutexLock lock(&mutex_);
    if (peers_.size() > kMostPeers) {
      peers_.clear();
    }
    std::shared_ptr<PeerStub>& peer = peers_[address];
    if (peer == nullptr) {
      peer = v1::WeightsService::NewStub(transport_.MakeChannel(address));
    }
    return peer;
  }

  const std::function<LinkHandler::Identity()> self;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1::MembershipService::Stub> stub;

 private:
  const Transport transport_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<PeerStub>> peers_ STRATA_GUARDED_BY(mutex_);  // By address.
};

GrpcWeightSources::GrpcWeightSources(const Transport& transport, const std::string& coordinator,
                                     std::function<LinkHandler::Identity()> self)
    : impl_(std::make_unique<Impl>(transport, coordinator, std::move(self))) {}
GrpcWeightSources::~GrpcWeightSources() = default;

std::vector<WeightSource> SourcesOf(const v1::FetchBlobChunk& chunk) {
  std::vector<WeightSource> sources;
  for (const v1::BlobSource& source : chunk.sources()) {
    const bool whole = CheckNodeName(source.node()).ok() && source.incarnation() != 0 &&
                       ParseDialled(source.address()).ok();
    if (whole && sources.size() < kMostSources) {
      sources.push_back({source.node(), source.incarnation(), source.address()});
    }
  }
  return sources;
}

absl::Status GrpcWeightSources::FromCoordinator(const std::string& sha256, uint64_t offset,
                                                const std::vector<std::string>& not_from,
                                                std::vector<WeightSource>* sources,
                                                const ChunkFn& sink, Cancellation* cancel) {
  v1::FetchBlobRequest request = RequestBy(impl_->self(), sha256, offset);
  request.set_may_name_sources(sources != nullptr);
  for (const std::string& node : not_from) {
    request.add_not_from(node);
  }
  bool named = false;
  const absl::Status status = ReadChunks(impl_->stub.get(), request, kCallTimeout, cancel,
                                         [&](const v1::FetchBlobChunk& chunk) {
                                           if (sources != nullptr && chunk.sources_size() > 0) {
                                             named = true;
                                             *sources = SourcesOf(chunk);
                                             return absl::OkStatus();
                                           }
                                           return sink(chunk.data());
                                         });
  if (status.ok() && named && sources->empty()) {
    return FromCoordinator(sha256, offset, not_from, nullptr, sink, cancel);  // None is any good.
  }
  return status;
}

absl::Status GrpcWeightSources::FromWorker(const WeightSource& source, const std::string& sha256,
                                           uint64_t offset, std::chrono::milliseconds timeout,
                                           const ChunkFn& sink, Cancellation* cancel) {
  v1::FetchBlobRequest request = RequestBy(impl_->self(), sha256, offset);
  request.set_expected_node(source.node);
  request.set_expected_incarnation(source.incarnation);
  return ReadChunks(impl_->Peer(source.address).get(), request, timeout, cancel,
                    [&](const v1::FetchBlobChunk& chunk) { return sink(chunk.data()); });
}

}  // namespace strata
