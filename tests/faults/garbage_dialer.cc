// In place of worker/service/grpc_link_dialer.cc: every tenth frame that this worker sends onward
// is wrong, in the way that STRATA_GARBAGE says. The frames' checksums are right: this is not what
// a wire does, but what a broken or hostile worker would.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "common/rpc/link.h"
#include "common/status.h"
#include "worker/service/grpc_link_dialer.h"

namespace strata {
namespace {

constexpr uint64_t kEvery = 10;

std::string Kind() {
  const char* kind = std::getenv("STRATA_GARBAGE");
  return kind == nullptr ? "" : kind;
}

class GarbageLink : public FrameLink {
 public:
  explicit GarbageLink(std::unique_ptr<LinkSender> sender) : sender_(std::move(sender)) {}

  absl::Status Send(StepMessage message) override {
    if (++sent_ % kEvery == 0) {
      Spoil(&message);
    }
    return Pass(std::move(message));
  }

  absl::Status Send(ResultMessage message) override {
    if (++sent_ % kEvery == 0) {
      Spoil(&message);
    }
    return Pass(std::move(message));
  }

 private:
  void Spoil(StepMessage* message) {
    v1::StepFrame& header = message->header;
    if (kind_ == "nan" && !message->payload.empty()) {
      message->payload.back() = std::numeric_limits<float>::quiet_NaN();
    } else if (kind_ == "shape" && !message->payload.empty()) {
      message->payload.pop_back();
    } else if (kind_ == "rows") {
      header.set_rows(header.rows() + 1);
    } else if (kind_ == "position" && header.items_size() > 0) {
      header.mutable_items(0)->set_position(header.items(0).position() + 1);
    } else if (kind_ == "token" && header.items_size() > 0) {
      header.mutable_items(0)->set_token_ids(0, std::numeric_limits<uint32_t>::max());
    } else {
      SpoilEnvelope(&header);
    }
  }

  void Spoil(ResultMessage* message) {
    v1::StepResult& header = message->header;
    if (kind_ == "token" && header.items_size() > 0 && header.items(0).tokens_size() > 0) {
      header.mutable_items(0)->mutable_tokens(0)->set_token_id(
          std::numeric_limits<uint32_t>::max());
    } else if (kind_ == "shape" && header.items_size() > 0) {
      header.mutable_items()->RemoveLast();
    } else if (kind_ == "nan" && header.items_size() > 0 && header.items(0).tokens_size() > 0) {
      header.mutable_items(0)->mutable_tokens(0)->set_logprob(
          std::numeric_limits<float>::quiet_NaN());
    } else {
      SpoilEnvelope(&header);
    }
  }

  template <typename Header>
  void SpoilEnvelope(Header* header) {
    if (kind_ == "gap") {
      header->set_step(header->step() + 1);
    } else if (kind_ == "epoch") {
      header->set_epoch(header->epoch() + 1);
    } else if (kind_ == "deployment") {
      header->set_deployment(header->deployment() + 1);
    } else if (kind_ == "pages" && header->stages_size() > 0) {
      v1::StageKv* kv = header->mutable_stages(header->stages_size() - 1);
      kv->set_free_pages(0, kv->free_pages(0) + 1);
    } else if (kind_ == "duplicate") {
      twice_ = true;
    }
  }

  template <typename Message>
  absl::Status Pass(Message message) {
    if (std::exchange(twice_, false)) {
      Message again = message;
      RETURN_IF_ERROR(sender_->Send(std::move(again)));
    }
    return sender_->Send(std::move(message));
  }

  const std::string kind_ = Kind();
  const std::unique_ptr<LinkSender> sender_;
  uint64_t sent_ = 0;
  bool twice_ = false;
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
  options.max_queued_frames = max_queued_frames + 1;  // For the one that goes twice.
  ASSIGN_OR_RETURN(std::unique_ptr<LinkSender> sender,
                   LinkSender::Open(loop_, transport_, std::move(options), std::move(on_broken)));
  return std::make_unique<GarbageLink>(std::move(sender));
}

}  // namespace strata
