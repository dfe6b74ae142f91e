#include "worker/service/diagnosis_service.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "common/app/log.h"
#include "common/mutex.h"
#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/peer_dial.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/diagnosis.grpc.pb.h"

namespace strata {
namespace {

constexpr int kMostDialled = 64;
constexpr uint32_t kLeastTimeoutMs = 100;
constexpr uint32_t kMostTimeoutMs = 30'000;

}  // namespace

class DiagnosisService::Impl {
 public:
  explicit Impl(const Transport* transport)
      : transport_(transport),
        threads_({.threads = 2,
                  .waiting = 8,
                  .name = "diagnosis",
                  .hint = "another diagnosis runs: try again in a moment"}) {}

  void Set(Self self) {
    MutexLock lock(&mutex_);
    self_ = std::move(self);
  }

  grpc::Service* NewService() {
    service_ = std::make_unique<AsyncService>();
    return service_.get();
  }

  void Serve(IoLoop* loop) {
    const BlockingMethods calls(service_.get(), loop, &threads_);
    calls.Serve(&AsyncService::RequestExamine, std::bind_front(&Impl::Examine, this));
    calls.Serve(&AsyncService::RequestDialPeers, std::bind_front(&Impl::DialPeers, this));
  }

 private:
  using AsyncService = v1::DiagnosisService::AsyncService;

  // Who this is, for those who may ask.
  absl::StatusOr<Self> SelfFor(const CallContext& context) {
    RETURN_IF_ERROR(CheckPeerRole(context.grpc(), CallFor::kOperators));
    MutexLock lock(&mutex_);
    if (!self_.has_value()) {
      return Error(absl::StatusCode::kUnavailable, "STARTING", "the worker is starting");
    }
    return *self_;
  }

  grpc::Status Examine(CallContext* context, const v1::ExamineRequest* request,
                       v1::MachineFacts* response) {
    auto self = SelfFor(*context);
    if (!self.ok()) {
      return ToGrpc(self.status());
    }
    self->examine.cache_bytes = self->cache_bytes ? self->cache_bytes() : 0;
    *response = strata::Examine(self->examine);
    for (std::string& line : RecentLogLines(request->log_lines())) {
      response->add_log_lines(std::move(line));
    }
    if (request->metrics() && self->metrics) {
      response->set_metrics(self->metrics());
    }
    return grpc::Status::OK;
  }

  grpc::Status DialPeers(CallContext* context, const v1::DialPeersRequest* request,
                         v1::DialPeersResponse* response) {
    const auto self = SelfFor(*context);
    if (!self.ok()) {
      return ToGrpc(self.status());
    }
    if (request->peers_size() > kMostDialled) {
      return ToGrpc(Error(absl::StatusCode::kInvalidArgument, "TOO_MANY_PEERS",
                          std::to_string(request->peers_size()) + " peers to dial at once")
                        .Limit("peers=" + std::to_string(kMostDialled)));
    }
    const std::chrono::milliseconds timeout(
        std::clamp(request->timeout_ms(), kLeastTimeoutMs, kMostTimeoutMs));
    for (const v1::DialPeersRequest::Peer& peer : request->peers()) {
      if (context->IsCancelled()) {
        break;
      }
      const PeerToDial to = {
          .node = peer.node(),
          .incarnation = peer.incarnation(),
          .address = peer.address().empty() ? self->coordinator : peer.address()};
      *response->add_links() = DialPeer(*transport_, self->examine.node, to, timeout,
                                        [context] { return context->IsCancelled(); });
    }
    return grpc::Status::OK;
  }

  const Transport* const transport_;
  Mutex mutex_;
  std::optional<Self> self_ STRATA_GUARDED_BY(mutex_);
  std::unique_ptr<AsyncService> service_;
  CallThreads threads_;  // Last: what it runs uses the others.
};

DiagnosisService::DiagnosisService(const Transport* transport)
    : impl_(std::make_unique<Impl>(transport)) {}
DiagnosisService::~DiagnosisService() = default;
void DiagnosisService::Set(Self self) { impl_->Set(std::move(self)); }
grpc::Service* DiagnosisService::NewService() { return impl_->NewService(); }
void DiagnosisService::Serve(IoLoop* loop) { impl_->Serve(loop); }

}  // namespace strata
