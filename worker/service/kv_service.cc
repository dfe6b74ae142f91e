#include "worker/service/kv_service.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/kv.grpc.pb.h"
#include "worker/service/expected_node.h"

namespace strata {

class KvService::Impl {
 public:
  Impl(const KvServiceOptions& options, std::function<LinkHandler::Identity()> self)
      : self_(std::move(self)),
        threads_({.threads = options.gives,
                  .name = "kv_gives",
                  .hint = "requests are computed again from their tokens"}) {}

  void Set(FindFn find) {
    MutexLock lock(&mutex_);
    find_ = std::move(find);
  }

  grpc::Service* NewService() {
    service_ = std::make_unique<AsyncService>();
    return service_.get();
  }

  void Serve(IoLoop* loop) {
    BlockingMethods(service_.get(), loop, &threads_)
        .Serve(&AsyncService::RequestCarryKv, std::bind_front(&Impl::CarryKv, this));
  }

 private:
  using AsyncService = v1::KvService::AsyncService;

  absl::StatusOr<std::shared_ptr<ShardHost>> Find(const v1::CarryKvRequest& request) const {
    const LinkHandler::Identity self = self_();
    RETURN_IF_ERROR(CheckExpectedNode(request, self));
    FindFn find;
    {
      MutexLock lock(&mutex_);
      find = find_;
    }
    std::shared_ptr<ShardHost> host =
        find != nullptr ? find(request.deployment(), request.loaded_epoch()) : nullptr;
    if (host == nullptr) {
      return Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT",
                   "deployment " + std::to_string(request.deployment()) + " of epoch " +
                       std::to_string(request.loaded_epoch()) + " is not loaded here")
          .Node(self.node);
    }
    return host;
  }

  grpc::Status CarryKv(CallContext* context, const v1::CarryKvRequest* request,
                       CallWriter<v1::CarryKvPart>* writer) {
    if (const absl::Status peer = CheckPeerRole(context->grpc(), CallFor::kMembers); !peer.ok()) {
      return ToGrpc(peer);
    }
    const auto host = Find(*request);
    if (!host.ok()) {
      return ToGrpc(host.status());
    }
    for (bool begins = true; !context->IsCancelled(); begins = false) {
      const auto parts = (*host)->GiveKv(*request, begins);
      if (!parts.ok()) {
        return ToGrpc(parts.status());
      }
      for (const v1::CarryKvPart& part : *parts) {
        if (!writer->Write(part)) {
          return grpc::Status::CANCELLED;  // Who asked went away.
        }
      }
      if (parts->empty()) {
        break;
      }
    }
    return grpc::Status::OK;
  }

  const std::function<LinkHandler::Identity()> self_;
  mutable Mutex mutex_;
  FindFn find_ STRATA_GUARDED_BY(mutex_);
  std::unique_ptr<AsyncService> service_;
  CallThreads threads_;  // Last: it uses the others.
};

KvService::KvService(const KvServiceOptions& options, std::function<LinkHandler::Identity()> self)
    : impl_(std::make_unique<Impl>(options, std::move(self))) {}
KvService::~KvService() = default;
void KvService::Set(FindFn find) { impl_->Set(std::move(find)); }
grpc::Service* KvService::NewService() { return impl_->NewService(); }
void KvService::Serve(IoLoop* loop) { impl_->Serve(loop); }

}  // namespace strata
