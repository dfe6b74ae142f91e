// The engine that a deployment runs, over the links of its stages: what the engine wants becomes
// fences and frames, and what comes by links and control streams is told to the engine.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_PIPELINE_H_
#define STRATA_COORDINATOR_DEPLOYMENT_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/frame.h"
#include "coordinator/deployment/deployment_host.h"
#include "coordinator/deployment/deployment_options.h"
#include "coordinator/deployment/placed_model.h"
#include "coordinator/deployment/stage_links.h"
#include "coordinator/engine/engine.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// A core: one thread. Nothing waits.
class Pipeline : public EngineHost {
 public:
  // What its deployment does for it.
  struct Events {
    // Whether the engine may be linked; not while its requests wait for a node.
    std::function<bool()> may_link;
    // The plan's epoch is this one from now on; why it may not be used.
    std::function<absl::Status(uint64_t epoch)> use_epoch;
    // No epoch up to this one is used again.
    std::function<void(uint64_t epoch)> skip_to;
    // Whether stages that cannot be mended are to be placed elsewhere.
    std::function<bool()> may_move;
    // All stages are linked in this epoch; before the engine hears of it.
    std::function<void(uint64_t epoch)> linked;
    // The links of LinkAhead are all open; or why they are not. No other call of it is at work.
    std::function<void(const absl::Status& status)> linked_ahead;
  };
  // `placed` and `host` outlive it.
  Pipeline(const PlacedModel* placed, const DeploymentOptions& options, DeploymentHost* host,
           Events events);
  ~Pipeline() override;

  // Null unless it runs, or its requests wait.
  Engine* engine() const { return engine_.get(); }
  size_t live_requests() const { return engine_ != nullptr ? engine_->live_sessions() : 0; }

  // All stages are loaded, for the first time or again.
  void Start();
  void Resume() { engine_->Resume(placed_->plan().epoch(), host_->Now()); }
  // Requests wait: the plan has changed its KV or its places, or stages are gone because of `why`,
  // for which they wait as long as Engine::LoseStages says of `patience`.
  void Suspend();
  void LoseStages(const absl::Status& why, nanoseconds patience);
  // Engine::Drain.
  void Drain(bool drains) { engine_->Drain(drains, host_->Now()); }
  bool drained() const { return engine_->drained(); }
  // The plan has changed its places, and other stages have the KV of those before: as Suspend, less
  // computing again.
  void Repoint();
  // Requests fail with `why`. The engine is kept until the loop's next turn.
  void Stop(const absl::Status& why);
  // StageLinks::OpenAhead: of another placement, for the epoch that Resume is to be called in. What
  // goes wrong with the stages that serve ends it, too.
  void LinkAhead(uint64_t epoch, const v1::Plan& plan, std::vector<std::vector<v1::Fence>> fences) {
    links_.OpenAhead(epoch, plan, std::move(fences));
  }
  void DropAhead() { links_.DropAhead(); }
  bool links_ahead() const { return links_.opens_ahead(); }
  bool CarriedAhead() const { return links_.CarriedAhead(); }
  std::vector<std::string> UnlinkedAhead() const { return links_.UnlinkedAhead(); }
  // Engine::CheckFits, of a plan with the same stages.
  absl::Status CheckFits(const v1::Plan& plan) const;

  void BeginTurn() { stopped_ = nullptr; }
  void Tick(TimePoint now);
  std::optional<TimePoint> NextWake() const;
  // Why the newest epoch could not be used, once.
  absl::Status TakeEpochProblem() { return std::exchange(epoch_problem_, absl::OkStatus()); }
  // Why the stages are to be placed elsewhere, once.
  absl::Status TakeBroken() { return std::exchange(broken_, absl::OkStatus()); }
  // Why links could not be opened, since ForgetLinkFault.
  const absl::Status& link_fault() const { return links_.last_fault(); }
  void ForgetLinkFault() { links_.ForgetFault(); }

  // What nodes say.
  void OnFenceAck(const std::string& node, const v1::FenceAck& ack);
  void OnLinkFault(const std::string& node, const v1::LinkFault& fault);
  // A results link was opened: its number, or none if it is not expected. It closed, or brought a
  // result: of no account once a newer one was opened.
  std::optional<uint64_t> AcceptResults(const v1::LinkOpen& open);
  void OnResultsClosed(uint64_t link, const absl::Status& status);
  void OnResult(uint64_t link, ResultMessage result);

  // EngineHost.
  void SendStep(StepMessage step) override { links_.Send(std::move(step)); }
  void SendFence(uint64_t epoch) override;
  std::vector<std::string> UnfencedNodes() const override {
    return links_.Unfenced(placed_->plan());
  }
  bool PlacesElsewhere(const absl::Status& why) override;
  bool AskDraftModel(GuessRequest request) override {
    return host_->AskDraftModel(placed_->id(), std::move(request));
  }

 private:
  EngineConfig MakeConfig() const;
  // The engine's links are of no account any more, and its epoch is not used again.
  void LeaveEpoch();
  void OnLinked(uint64_t epoch);
  // A link broke, or could not be opened.
  void OnFault(uint64_t epoch, const absl::Status& why);

  const PlacedModel* const placed_;
  const DeploymentOptions options_;
  DeploymentHost* const host_;
  const Events events_;

  absl::Status epoch_problem_;
  absl::Status broken_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Engine> stopped_;
  StageLinks links_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_PIPELINE_H_
