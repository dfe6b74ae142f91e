// A model under a plan: loads it on its workers, fences and links them, and runs the engine over
// them. A core: one thread, the event loop's in the process; time and the network are the host's.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_H_
#define STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/frame.h"
#include "coordinator/deployment/deployed_model.h"
#include "coordinator/deployment/deployment_host.h"
#include "coordinator/deployment/deployment_options.h"
#include "coordinator/deployment/deployment_phase.h"
#include "coordinator/deployment/load_messages.h"
#include "coordinator/deployment/load_retry.h"
#include "coordinator/deployment/load_watch.h"
#include "coordinator/deployment/recorded_epochs.h"
#include "coordinator/deployment/stage_links.h"
#include "coordinator/deployment/waits.h"
#include "coordinator/engine/engine.h"
#include "coordinator/store/state_store.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/membership.pb.h"

namespace strata {

class Deployment : public EngineHost {
 public:
  // `plan` names nodes by name; incarnations are filled in by Load. `options` are complete.
  Deployment(uint64_t id, std::shared_ptr<const DeployedModel> model, v1::Plan plan,
             v1::LoadOptions load_options, RotaryBlob rotary, DeploymentOptions options,
             DeploymentHost* host);
  ~Deployment() override;

  uint64_t id() const { return id_; }
  const std::shared_ptr<const DeployedModel>& model() const { return model_; }
  const v1::Plan& plan() const { return plan_; }
  const v1::LoadOptions& load_options() const { return load_options_; }
  DeploymentState state() const { return StateOf(phase_); }
  const absl::Status& problem() const { return problem_; }
  // Null unless ready, or requests wait for a worker's return.
  Engine* engine() { return engine_.get(); }
  const Engine* engine() const { return engine_.get(); }
  std::vector<v1::LoadModelProgress::Worker> Progress() const;
  // What it waits for now.
  std::vector<Waiting> Waits() const;
  // Loads that failed, and when the next one begins by itself.
  const LoadRetry& retry() const { return retry_; }
  // What its workers wait for is not theirs to hasten: they are not silent until now.
  void ExcuseSilence() { loading_.Excuse(host_->Now()); }
  // One that failed, and is to be loaded again by now, waits for its nodes from here on.
  bool BeginRetry(TimePoint now);
  // Of a stage with one layer alone and KV for one sequence of so many tokens, `rows` at once, as
  // ComputeLayers has it: weights and numerics are the deployment's.
  v1::Load MakeLayerLoad(uint32_t layer, uint32_t tokens, uint32_t rows) const;
  bool Uses(const std::string& node) const;

  // What is to be found after a restart. Its epoch is above all that may be used until the next
  // record is there, so that a fence need not wait for a disk: see OnRecorded.
  StoredDeployment Record() const { return RecordOf(plan_, load_options_); }
  // The same for what Resize would make of it.
  StoredDeployment RecordOf(const v1::Plan& plan, const v1::LoadOptions& options) const;
  // A record with this epoch is in the store; or could not be put there.
  void OnRecorded(uint64_t epoch, const absl::Status& status);

  // Begins (again) on nodes whose incarnations are `incarnations`, by name; a new epoch.
  void Load(const std::map<std::string, uint64_t>& incarnations);
  // Ends everything: sessions fail with `why`, workers unload.
  void Unload(const absl::Status& why);
  // Other KV pages on the same nodes and layers, a new epoch; sessions wait meanwhile and are
  // computed again. Begins only if all of them fit `plan`; FAILED_PRECONDITION (KV_IN_USE, or
  // NOT_READY). When it fails later, the deployment goes back to what it was: resize_problem().
  absl::Status Resize(const v1::Plan& plan, const v1::LoadOptions& options);
  // Whether Resize would begin, but for what changes in between.
  absl::Status CheckResize(const v1::Plan& plan) const;
  // Why the last Resize was undone; ok while it is under way and when it succeeded.
  const absl::Status& resize_problem() const { return resize_problem_; }
  // While the store is told that it ends, no new sessions begin.
  void Hold(bool hold) { held_ = hold; }
  bool held() const { return held_; }
  // The engine is there and takes requests, if only to queue them.
  bool serves() const {
    return engine_ != nullptr && !leaving_ && !held_ &&
           (phase_ == DeploymentPhase::kReady || phase_ == DeploymentPhase::kResizing);
  }

  // Events.
  void OnNodeLost(const std::string& node);
  // The node was told to stop: new requests are refused; when those there have ended its stages
  // are unloaded.
  void OnNodeLeaving(const std::string& node);
  // A node joined: what had failed on it may succeed now.
  void OnNodeJoined(const std::string& node);
  // Why a model that waits is not loaded, for `status`.
  void SetWaitingFor(const std::vector<std::string>& nodes);
  void OnLoadProgress(const std::string& node, const v1::LoadProgress& progress);
  void OnFenceAck(const std::string& node, const v1::FenceAck& ack);
  void OnLinkFault(const std::string& node, const v1::LinkFault& fault);
  // A results link was opened: its number, or none if it is not expected. It closed, or brought a
  // result: of no account once a newer one was opened.
  std::optional<uint64_t> AcceptResults(const v1::LinkOpen& open);
  void OnResultsClosed(uint64_t link, const absl::Status& status);
  void OnResult(uint64_t link, ResultMessage result);
  std::optional<TimePoint> NextWake() const;
  void Tick(TimePoint now);

  // EngineHost.
  void SendStep(StepMessage step) override { links_.Send(std::move(step)); }
  void SendFence(uint64_t epoch) override;
  std::vector<std::string> UnfencedNodes() const override { return links_.Unfenced(plan_); }

 private:
  // What a load places.
  struct Placing {
    v1::Plan plan;
    v1::LoadOptions options;
  };

  const v1::PlanRank& RankOf(int stage) const;
  uint64_t NextEpoch() const;
  LoadSubject Subject() const;
  v1::Load MakeLoad(int stage) const;
  // False when a node has no control stream: the deployment has failed by it.
  bool SendLoads();
  void Move(DeploymentEvent event) { phase_ = NextPhase(phase_, event); }
  void LoadFailed(const absl::Status& why);
  // Gives up a load whose worker is silent for too long.
  void EndLateLoad(TimePoint now);
  void LoadResized(Placing placing);
  void UndoResize(const absl::Status& why);
  void StartEngine();
  // The stages are linked in this epoch; or a link broke, or could not be opened.
  void OnLinked(uint64_t epoch);
  void OnFault(uint64_t epoch, const absl::Status& why);
  // A node is gone: requests that ran wait for it, as long as the engine lets them.
  void AwaitNode(const absl::Status& why);
  // `event`: kWait or kFail.
  void GiveUp(DeploymentEvent event, const absl::Status& why);
  void TellWorkersToUnload();
  void StopEngine(const absl::Status& why);

  const uint64_t id_;
  const std::shared_ptr<const DeployedModel> model_;
  v1::Plan plan_;
  v1::LoadOptions load_options_;
  const RotaryBlob rotary_;
  const DeploymentOptions options_;
  DeploymentHost* const host_;

  DeploymentPhase phase_ = DeploymentPhase::kWaiting;
  absl::Status problem_;
  RecordedEpochs epochs_;
  absl::Status epoch_problem_;  // Why an epoch could not be used.
  absl::Status resize_problem_;
  std::optional<Placing> before_resize_;  // While resizing: what it goes back to.
  bool leaving_ = false;                  // A node is: no new sessions.
  bool held_ = false;
  LoadWatch loading_;
  TimePoint state_since_{};  // Of kWaiting, and of linking.
  LoadRetry retry_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Engine> stopped_engine_;  // Kept until the loop's next turn.
  StageLinks links_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_H_
