#include "common/rpc/health_service.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <optional>
#include <set>

#include "common/mutex.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/io_unary.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace strata {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using AsyncService = grpc::health::v1::Health::AsyncService;

}  // namespace

class HealthService::Impl {
 public:
  grpc::Service* NewService() {
    service_ = std::make_unique<AsyncService>();
    return service_.get();
  }

  void Serve(IoLoop* loop) {
    IoUnaryCall<HealthCheckRequest, HealthCheckResponse>::Serve(
        loop, {.request =
                   [this, loop](auto* context, auto* request, auto* writer, void* tag) {
                     service_->RequestCheck(context, request, writer, loop->queue(),
                                            loop->server_queue(), tag);
                   },
               .answer = [this](const auto& request,
                                auto* response) { return Check(request, response); }});
    new WatchCall(this, loop);
  }

  void SetServing(bool serving) {
    MutexLock lock(&mutex_);
    serving_ = serving && !closing_;
    for (WatchCall* call : watching_) {
      call->Tell(StatusLocked(call->name()), closing_);
    }
  }

  void Shutdown() {
    {
      MutexLock lock(&mutex_);
      closing_ = true;
    }
    SetServing(false);
  }

 private:
  // One Watch, from when the server may take it. Deletes itself. What may write is guarded by the
  // service's mutex.
  class WatchCall : public IoCall {
   public:
    WatchCall(Impl* health, IoLoop* loop) : IoCall(loop, Side::kServer), health_(health) {
      (void)Begin();
      context_.AsyncNotifyWhenDone(gone_.tag());
      health_->service_->RequestWatch(&context_, &request_, &writer_, loop->queue(),
                                      loop->server_queue(), accepted_.tag());
    }

    const std::string& name() const { return request_.service(); }

    // With the service's mutex held. `last`: the stream ends once it has been told.
    void Tell(HealthCheckResponse::ServingStatus status, bool last) {
      if (writing_ || finishing_) {
        return;  // The write's end asks again.
      }
      if (!broken_ && told_ != status) {
        told_ = status;
        HealthCheckResponse response;
        response.set_status(status);
        writing_ = Begin();
        writer_.Write(response, written_.tag());
      } else if (broken_ || last) {
        finishing_ = true;
        writer_.Finish({grpc::StatusCode::CANCELLED, "the process is ending"}, finished_.tag());
      }
    }

   private:
    void OnAccepted(bool ok) {
      if (!ok) {
        End();  // gone_ does not come either.
        return;
      }
      (void)Begin();  // For gone_.
      new WatchCall(health_, loop());
      MutexLock lock(&health_->mutex_);
      health_->watching_.insert(this);
      Tell(health_->StatusLocked(name()), health_->closing_);
    }

    void OnWritten(bool ok) {
      MutexLock lock(&health_->mutex_);
      writing_ = false;
      broken_ = broken_ || !ok;
      Tell(health_->StatusLocked(name()), health_->closing_);
    }

    // The client went away, or Finish has been heard.
    void OnGone() {
      MutexLock lock(&health_->mutex_);
      health_->watching_.erase(this);
      broken_ = true;
      Tell(health_->StatusLocked(name()), health_->closing_);
    }

    void OnEnd() override { delete this; }

    Impl* const health_;
    grpc::ServerContext context_;
    HealthCheckRequest request_;
    grpc::ServerAsyncWriter<HealthCheckResponse> writer_{&context_};
    Op accepted_{this, [this](bool ok) { OnAccepted(ok); }};
    Op gone_{this, [this](bool) { OnGone(); }};
    Op written_{this, [this](bool ok) { OnWritten(ok); }};
    Op finished_{this, [](bool) {}};
    std::optional<HealthCheckResponse::ServingStatus> told_;
    bool writing_ = false;
    bool broken_ = false;
    bool finishing_ = false;
  };

  grpc::Status Check(const HealthCheckRequest& request, HealthCheckResponse* response) {
    if (!request.service().empty()) {
      return {grpc::StatusCode::NOT_FOUND, "service name unknown"};
    }
    MutexLock lock(&mutex_);
    response->set_status(StatusLocked(request.service()));
    return grpc::Status::OK;
  }

  HealthCheckResponse::ServingStatus StatusLocked(const std::string& name) STRATA_REQUIRES(mutex_) {
    return !name.empty() ? HealthCheckResponse::SERVICE_UNKNOWN
           : serving_    ? HealthCheckResponse::SERVING
                         : HealthCheckResponse::NOT_SERVING;
  }

  std::unique_ptr<AsyncService> service_;
  Mutex mutex_;
  bool serving_ STRATA_GUARDED_BY(mutex_) = true;
  bool closing_ STRATA_GUARDED_BY(mutex_) = false;
  std::set<WatchCall*> watching_ STRATA_GUARDED_BY(mutex_);
};

HealthService::HealthService() : impl_(std::make_unique<Impl>()) {}
HealthService::~HealthService() = default;
void HealthService::SetServing(bool serving) { impl_->SetServing(serving); }
void HealthService::Shutdown() { impl_->Shutdown(); }
grpc::Service* HealthService::NewService() { return impl_->NewService(); }
void HealthService::Serve(IoLoop* loop) { impl_->Serve(loop); }

}  // namespace strata
