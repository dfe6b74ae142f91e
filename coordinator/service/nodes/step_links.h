// The links of steps as the process has them: it dials first stages, and takes the results of last
// ones.
#ifndef STRATA_COORDINATOR_SERVICE_NODES_STEP_LINKS_H_
#define STRATA_COORDINATOR_SERVICE_NODES_STEP_LINKS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/link_service.h"
#include "common/rpc/transport.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/service/loop/blocking_tasks.h"
#include "coordinator/service/loop/event_loop.h"

namespace strata {

class StepLinks : public LinkHandler {
 public:
  // Nothing is owned; all outlive the links. `incarnation` is this process's.
  StepLinks(uint64_t incarnation, const Transport* transport, EventLoop* loop, BlockingTasks* tasks,
            const Deployments* deployments)
      : incarnation_(incarnation),
        transport_(transport),
        loop_(loop),
        tasks_(tasks),
        deployments_(deployments) {}

  // `io` serves the links from now on.
  void OnServing(IoLoop* io) { io_ = io; }
  uint64_t incarnation() const { return incarnation_; }

  // DeploymentHost::OpenLink.
  void Open(StepLinkRequest request,
            std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
            std::function<void(const absl::Status& status)> on_broken);

  // LinkHandler: results of last stages. FAILED_PRECONDITION (LINK_NOT_EXPECTED).
  Identity identity() const override { return {"", incarnation_}; }
  absl::StatusOr<std::shared_ptr<LinkSink>> OnOpen(const v1::LinkOpen& open,
                                                   const std::string& peer,
                                                   std::shared_ptr<InboundLink> link) override;

 private:
  class FirstLink;
  class ResultsSink;

  const uint64_t incarnation_;
  const Transport* const transport_;
  EventLoop* const loop_;
  BlockingTasks* const tasks_;
  const Deployments* const deployments_;  // The loop's.
  std::atomic<IoLoop*> io_ = nullptr;     // Since OnServing.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_NODES_STEP_LINKS_H_
