// Ties the stages of a deployment together in an epoch: fences their workers, dials the first stage
// once all have acknowledged, and takes the results of the last.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_STAGE_LINKS_H_
#define STRATA_COORDINATOR_DEPLOYMENT_STAGE_LINKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/frame.h"
#include "coordinator/deployment/deployment_host.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/shard.pb.h"
#include "strata/v1/types.pb.h"

namespace strata {

// A core: one thread. Nothing waits.
class StageLinks {
 public:
  // Called from Fence's callers' thread, later.
  struct Events {
    std::function<bool()> wanted;                // Whether somebody waits for links at all.
    std::function<void(uint64_t epoch)> linked;  // All stages are fenced, the first is dialled.
    std::function<void(uint64_t epoch, const absl::Status& why)> fault;
    // The links of OpenAhead are all open; or why they are not.
    std::function<void(const absl::Status& status)> ahead;
  };
  // A link that is not open after `open_timeout` is a fault. `host` outlives the links.
  StageLinks(uint64_t deployment, std::string model, nanoseconds open_timeout, DeploymentHost* host,
             Events events)
      : deployment_(deployment),
        model_(std::move(model)),
        open_timeout_(open_timeout),
        host_(host),
        events_(std::move(events)) {}
  ~StageLinks() { *alive_ = false; }
  StageLinks(const StageLinks&) = delete;
  StageLinks& operator=(const StageLinks&) = delete;

  // The newest epoch that was fenced, or skipped.
  uint64_t epoch() const { return epoch_; }
  // No earlier epoch is of account any more.
  void SkipTo(uint64_t epoch);
  // Ends the link to the first stage, and waits for no acknowledgement.
  void Drop();
  // Begins the epoch without a word to the workers: ends the link to the first stage.
  void Begin(uint64_t epoch);
  // Has the workers of another placement open links for `epoch`, a newer one, beside those in use,
  // and dials its first stage. That epoch finds them open when it begins; another one that begins
  // ends what there is of them here, as does DropAhead, and the workers' next fence the rest.
  // `fences`: PlacedModel::FencesAhead.
  void OpenAhead(uint64_t epoch, const v1::Plan& plan, std::vector<std::vector<v1::Fence>> fences);
  void DropAhead() { ahead_.reset(); }
  // Since OpenAhead, until they are found or ended; who has not opened his, in the order of stages.
  bool opens_ahead() const { return ahead_.has_value(); }
  std::vector<std::string> UnlinkedAhead() const;
  // Whether each stage that was to take over KV for it has pages of that.
  bool CarriedAhead() const { return ahead_.has_value() && ahead_->uncarried.empty(); }
  // Has the plan's workers fence the epoch that was begun: PlacedModel::Fences.
  void Fence(const v1::Plan& plan, std::vector<v1::Fence> fences);
  // Who has not acknowledged, in the order of stages; once all have, and the first stage is not
  // linked yet, that one's.
  std::vector<std::string> Unfenced(const v1::Plan& plan) const;

  void OnFenceAck(const std::string& node, const v1::FenceAck& ack, const v1::Plan& plan);
  // To the first stage, if it is linked in the step's epoch.
  void Send(StepMessage step);
  // A results link was opened: its number, or none if it is not expected. It closed: of no account
  // once a newer one was opened.
  std::optional<uint64_t> AcceptResults(const v1::LinkOpen& open, const v1::Plan& plan);
  void OnResultsClosed(uint64_t link, const absl::Status& status);
  bool IsNewestResults(uint64_t link) const { return link == results_; }

  // Why links could not be opened, since ForgetFault.
  const absl::Status& last_fault() const { return last_fault_; }
  void ForgetFault() { last_fault_ = absl::OkStatus(); }

 private:
  struct Ahead {
    uint64_t epoch = 0;
    v1::Plan plan = {};
    std::set<std::string> unlinked = {};
    std::set<std::string> uncarried = {};  // Nodes whose stages take over KV.
    std::unique_ptr<StepLink> first = nullptr;
    uint64_t results = 0;  // The number of the results link; 0: none.
  };

  bool IsAhead(uint64_t epoch) const { return ahead_.has_value() && ahead_->epoch == epoch; }
  void SendFence(uint64_t epoch, const v1::PlanRank& rank, v1::Fence fence);
  void OnAheadAck(const std::string& node, const v1::FenceAck& ack);
  void OpenFirst(uint64_t epoch, const v1::Plan& plan);
  void OnFirst(uint64_t epoch, absl::StatusOr<std::unique_ptr<StepLink>> link);
  void OnFirstAhead(absl::StatusOr<std::unique_ptr<StepLink>> link);
  void OnFirstBroken(uint64_t epoch, const absl::Status& status);

  const uint64_t deployment_;
  const std::string model_;
  const nanoseconds open_timeout_;
  DeploymentHost* const host_;
  const Events events_;

  uint64_t epoch_ = 0;
  absl::Status last_fault_;
  std::set<std::string> unfenced_;
  std::unique_ptr<StepLink> first_;
  uint64_t first_epoch_ = 0;
  std::optional<Ahead> ahead_;
  uint64_t results_taken_ = 0;  // Results links, of which each has a number.
  uint64_t results_ = 0;        // Number of the newest.
  uint64_t results_epoch_ = 0;  // Its epoch.
  // Tells callbacks that come later whether this is still alive.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_STAGE_LINKS_H_
