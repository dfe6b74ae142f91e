// What a deployment needs of the process around it.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_HOST_H_
#define STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_HOST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/frame.h"
#include "coordinator/engine/draft_model.h"
#include "coordinator/engine/sequence_numbers.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// An open link to stage 0. Destroying it ends it, without waiting.
class StepLink {
 public:
  virtual ~StepLink() = default;
  // Never waits for the network. A frame that cannot be sent breaks the link.
  virtual void Send(StepMessage step) = 0;
};

struct StepLinkRequest {
  std::string address;  // host:port.
  v1::LinkOpen open;
  milliseconds open_timeout{0};
  uint32_t max_queued_frames = 0;
};

// All calls from the thread that the deployment is on.
class DeploymentHost {
 public:
  virtual ~DeploymentHost() = default;
  // False when the node has no control stream now.
  virtual bool SendToNode(const std::string& node, uint64_t incarnation,
                          v1::CoordinatorMessage message) = 0;
  virtual TimePoint Now() const = 0;
  // Dials without blocking. `on_opened` is called once, on the loop, later; after it `on_broken`,
  // at most once, on the loop, when the link broke by itself.
  virtual void OpenLink(
      StepLinkRequest request,
      std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened,
      std::function<void(const absl::Status& status)> on_broken) = 0;
  // What the node advertises.
  virtual std::string AddressOf(const std::string& node) const = 0;
  // Whether its worker knows Fence.ahead.
  virtual bool LinksAhead(const std::string& node) const = 0;
  virtual uint64_t coordinator_incarnation() const = 0;
  // Records what Deployment::Record gives, soon and without waiting for it: Deployment::OnRecorded
  // tells.
  virtual void RecordLater(uint64_t deployment) = 0;
  // Its placements changed: for `node list` and the memory that other plans may use.
  virtual void OnPlacement(uint64_t deployment, const v1::Plan& plan, bool placed, bool ready) = 0;
  // Stages of `plan` are being loaded beside those that stand, but for those that stay
  // (StageStays); null: none are any more. The same use.
  virtual void OnPrepared(uint64_t deployment, const v1::Plan* plan) = 0;
  // EngineHost::AskDraftModel of the deployment's engine, which is told Engine::OnGuesses.
  virtual bool AskDraftModel(uint64_t /*deployment*/, GuessRequest /*request*/) { return false; }
  virtual SequenceNumbers* sequence_numbers() = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_HOST_H_
