#include "worker/service/grpc_link_dialer.h"

#include <utility>

#include "common/rpc/link.h"
#include "common/status.h"

namespace strata {
namespace {

class GrpcFrameLink : public FrameLink {
 public:
  explicit GrpcFrameLink(std::unique_ptr<LinkSender> sender) : sender_(std::move(sender)) {}
  absl::Status Send(StepMessage message) override { return sender_->Send(std::move(message)); }
  absl::Status Send(ResultMessage message) override { return sender_->Send(std::move(message)); }

 private:
  const std::unique_ptr<LinkSender> sender_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FrameLink>> GrpcLinkDialer::Dial(const std::string& address,
                                                                const v1::LinkOpen& open,
                                                                uint32_t max_queued_frames,
                                                                milliseconds timeout,
                                                                OnBroken on_broken) {
  LinkOptions options;
  options.address = address;
  options.open = open;
  options.open_timeout = timeout;
  options.max_queued_frames = max_queued_frames;
  ASSIGN_OR_RETURN(std::unique_ptr<LinkSender> sender,
                   LinkSender::Open(loop_, transport_, std::move(options), std::move(on_broken)));
  return std::make_unique<GrpcFrameLink>(std::move(sender));
}

}  // namespace strata
