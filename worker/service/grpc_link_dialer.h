#ifndef STRATA_WORKER_SERVICE_GRPC_LINK_DIALER_H_
#define STRATA_WORKER_SERVICE_GRPC_LINK_DIALER_H_

#include <memory>
#include <string>

#include "common/rpc/transport.h"
#include "worker/service/frame_link.h"

namespace strata {

// Links of common/rpc. Any thread.
class GrpcLinkDialer : public LinkDialer {
 public:
  explicit GrpcLinkDialer(Transport transport) : transport_(std::move(transport)) {}
  absl::StatusOr<std::unique_ptr<FrameLink>> Dial(const std::string& address,
                                                  const v1::LinkOpen& open,
                                                  uint32_t max_queued_frames, milliseconds timeout,
                                                  OnBroken on_broken) override;

 private:
  const Transport transport_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_GRPC_LINK_DIALER_H_
