#ifndef STRATA_WORKER_SERVICE_GRPC_LINK_DIALER_H_
#define STRATA_WORKER_SERVICE_GRPC_LINK_DIALER_H_

#include <map>
#include <memory>
#include <string>

#include "common/mutex.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/transport.h"
#include "strata/v1/kv.grpc.pb.h"
#include "worker/service/frame_link.h"

namespace strata {

// Links of common/rpc. Any thread but the loop's.
class GrpcLinkDialer : public LinkDialer {
 public:
  // `loop` outlives the dialer and its links.
  GrpcLinkDialer(IoLoop* loop, Transport transport);
  ~GrpcLinkDialer() override;
  absl::StatusOr<std::unique_ptr<FrameLink>> Dial(const std::string& address,
                                                  const v1::LinkOpen& open,
                                                  uint32_t max_queued_frames, milliseconds timeout,
                                                  OnBroken on_broken) override;
  // On connections of their own, so that KV does not hold up steps.
  absl::Status CarryKv(const std::string& address, const v1::CarryKvRequest& request,
                       milliseconds timeout, Cancellation* cancel, const TakeFn& take) override;

 private:
  std::shared_ptr<v1::KvService::Stub> KvOf(const std::string& address);

  IoLoop* const loop_;
  const Transport transport_;
  Mutex mutex_;
  // By address.
  std::map<std::string, std::shared_ptr<v1::KvService::Stub>> peers_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_GRPC_LINK_DIALER_H_
