#include "coordinator/service/nodes/step_links.h"

#include <optional>
#include <utility>

#include "common/rpc/link.h"
#include "common/status.h"
#include "coordinator/service/loop/errors.h"

namespace strata {

// Closing may wait for a callback that waits for nothing of ours; still off the loop.
class StepLinks::FirstLink : public StepLink {
 public:
  FirstLink(BlockingTasks* tasks, std::shared_ptr<LinkSender> link)
      : tasks_(tasks), link_(std::move(link)) {}
  ~FirstLink() override {
    tasks_->Run([link = std::move(link_)] { link->Close(); });
  }
  void Send(StepMessage step) override { link_->Send(std::move(step)).IgnoreError(); }

 private:
  BlockingTasks* const tasks_;
  std::shared_ptr<LinkSender> link_;
};

void StepLinks::Open(StepLinkRequest request,
                     std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
                     std::function<void(const absl::Status& status)> on_broken) {
  LinkOptions options;
  options.address = std::move(request.address);
  options.open = std::move(request.open);
  options.open_timeout = request.open_timeout;
  options.max_queued_frames = request.max_queued_frames;
  auto broken = [this, on_broken = std::move(on_broken)](const absl::Status& status) {
    loop_->Post([on_broken, status] { on_broken(status); });
  };
  tasks_->Run([this, options = std::move(options), on_opened = std::move(on_opened),
               broken = std::move(broken)] {
    auto link = LinkSender::Open(io_, *transport_, options, broken);
    const absl::Status status = link.status();
    std::shared_ptr<LinkSender> opened = link.ok() ? *std::move(link) : nullptr;
    loop_->Post([this, on_opened, status, opened] {
      if (opened != nullptr) {
        on_opened(std::make_unique<FirstLink>(tasks_, opened));
      } else {
        on_opened(status);
      }
    });
  });
}

class StepLinks::ResultsSink : public LinkSink {
 public:
  ResultsSink(StepLinks* links, uint64_t deployment, uint64_t link)
      : links_(links), deployment_(deployment), link_(link) {}

  absl::Status OnResult(ResultMessage result) override {
    auto shared = std::make_shared<ResultMessage>(std::move(result));
    const bool posted = links_->loop_->RunOrPost(
        [all = links_->deployments_, id = deployment_, link = link_, shared] {
          if (Deployment* deployment = all->Find(id)) {
            deployment->pipeline()->OnResult(link, std::move(*shared));
          }
        });
    return posted ? absl::OkStatus() : Stopping();
  }

  void OnClosed(const absl::Status& status) override {
    links_->loop_->Post([all = links_->deployments_, id = deployment_, link = link_, status] {
      if (Deployment* deployment = all->Find(id)) {
        deployment->pipeline()->OnResultsClosed(link, status);
      }
    });
  }

 private:
  StepLinks* const links_;
  const uint64_t deployment_;
  const uint64_t link_;
};

absl::StatusOr<std::shared_ptr<LinkSink>> StepLinks::OnOpen(const v1::LinkOpen& open,
                                                            const std::string& peer,
                                                            std::shared_ptr<InboundLink> link) {
  const std::optional<uint64_t> accepted =
      loop_
          ->Call([&] {
            Deployment* deployment = deployments_->Find(open.deployment());
            return deployment != nullptr ? deployment->pipeline()->AcceptResults(open)
                                         : std::nullopt;
          })
          .value_or(std::nullopt);
  if (!accepted.has_value()) {
    return Error(absl::StatusCode::kFailedPrecondition, "LINK_NOT_EXPECTED",
                 "no results of deployment " + std::to_string(open.deployment()) + " epoch " +
                     std::to_string(open.epoch()) + " are expected from node '" + open.from_node() +
                     "' at " + peer);
  }
  return std::make_shared<ResultsSink>(this, open.deployment(), *accepted);
}

}  // namespace strata
