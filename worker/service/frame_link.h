// Links as a stage sees them, so that it runs over gRPC and over queues of a test alike.
#ifndef STRATA_WORKER_SERVICE_FRAME_LINK_H_
#define STRATA_WORKER_SERVICE_FRAME_LINK_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/frame.h"
#include "strata/v1/kv.pb.h"
#include "strata/v1/shard.pb.h"
#include "worker/weights/cancellation.h"

namespace strata {

// The sending end of an open link; as LinkSender (common/rpc/link.h). Closes when destroyed.
class FrameLink {
 public:
  virtual ~FrameLink() = default;
  virtual absl::Status Send(StepMessage message) = 0;
  virtual absl::Status Send(ResultMessage message) = 0;
};

// Opens links, and has other stages give KV. Any thread.
class LinkDialer {
 public:
  // As LinkSender::OnBroken, on any thread.
  using OnBroken = std::function<void(const absl::Status&)>;
  virtual ~LinkDialer() = default;
  // Waits until the receiver accepted, `timeout` at most. Errors: those of LinkSender::Open. Of the
  // frames sent, `max_queued_frames` may wait to be written; one more breaks the link.
  virtual absl::StatusOr<std::unique_ptr<FrameLink>> Dial(const std::string& address,
                                                          const v1::LinkOpen& open,
                                                          uint32_t max_queued_frames,
                                                          milliseconds timeout,
                                                          OnBroken on_broken) = 0;
  // Asks the worker at `address`, and hands on what it gives until `take` returns an error;
  // `timeout` at most.
  using TakeFn = std::function<absl::Status(const v1::CarryKvPart& part)>;
  virtual absl::Status CarryKv(const std::string& address, const v1::CarryKvRequest& request,
                               milliseconds timeout, Cancellation* cancel, const TakeFn& take) = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_FRAME_LINK_H_
