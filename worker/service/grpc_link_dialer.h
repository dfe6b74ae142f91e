#ifndef STRATA_WORKER_SERVICE_GRPC_LINK_DIALER_H_
#define STRATA_WORKER_SERVICE_GRPC_LINK_DIALER_H_

#include <memory>
#include <string>
#include <utility>

#include "common/rpc/io_loop.h"
#include "common/rpc/transport.h"
#include "worker/service/frame_link.h"

namespace strata {

// Links of common/rpc. Any thread but the loop's.
class GrpcLinkDialer : public LinkDialer {
 public:
  // `loop` outlives the dialer and its links.
  GrpcLinkDialer(IoLoop* loop, Transport transport)
      : loop_(loop), transport_(std::move(transport)) {}
  absl::StatusOr<std::unique_ptr<FrameLink>> Dial(const std::string& address,
                                                  const v1::LinkOpen& open,
                                                  uint32_t max_queued_frames, milliseconds timeout,
                                                  OnBroken on_broken) override;

 private:
  IoLoop* const loop_;
  const Transport transport_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_GRPC_LINK_DIALER_H_
