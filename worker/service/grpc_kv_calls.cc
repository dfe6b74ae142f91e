// KV that other workers give, over gRPC.
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <utility>

#include "common/rpc/status.h"
#include "strata/v1/kv.grpc.pb.h"
#include "worker/service/grpc_link_dialer.h"

namespace strata {
namespace {

// Workers whose connections are kept; with more, all begin anew.
constexpr size_t kMostGivers = 64;

}  // namespace

GrpcLinkDialer::GrpcLinkDialer(IoLoop* loop, Transport transport)
    : loop_(loop), transport_(std::move(transport)) {}
GrpcLinkDialer::~GrpcLinkDialer() = default;

std::shared_ptr<v1::KvService::Stub> GrpcLinkDialer::KvOf(const std::string& address) {
  MutexLock lock(&mutex_);
  if (peers_.size() > kMostGivers) {
    peers_.clear();
  }
  std::shared_ptr<v1::KvService::Stub>& peer = peers_[address];
  if (peer == nullptr) {
    peer = v1::KvService::NewStub(transport_.MakeChannel(address));
  }
  return peer;
}

absl::Status GrpcLinkDialer::CarryKv(const std::string& address, const v1::CarryKvRequest& request,
                                     milliseconds timeout, Cancellation* cancel,
                                     const TakeFn& take) {
  const std::shared_ptr<v1::KvService::Stub> stub = KvOf(address);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  const auto reader = stub->CarryKv(&context, request);
  const Cancellation::Waker waker(cancel, [&context] { context.TryCancel(); });
  v1::CarryKvPart part;
  absl::Status taken;
  while (taken.ok() && reader->Read(&part)) {
    taken = take(part);
  }
  if (!taken.ok()) {
    context.TryCancel();
  }
  const absl::Status status = FromGrpc(reader->Finish());
  return taken.ok() ? status : taken;
}

}  // namespace strata
