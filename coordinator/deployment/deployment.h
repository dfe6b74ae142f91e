// A placed model on its way to requests: has its stages loaded, fenced and linked, and runs the
// engine over them. A core: one thread, the event loop's in the process; time and the network are
// the host's.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_H_
#define STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/deployment/deployed_model.h"
#include "coordinator/deployment/deployment_host.h"
#include "coordinator/deployment/deployment_options.h"
#include "coordinator/deployment/deployment_phase.h"
#include "coordinator/deployment/load_retry.h"
#include "coordinator/deployment/pipeline.h"
#include "coordinator/deployment/placed_model.h"
#include "coordinator/deployment/stage_loads.h"
#include "coordinator/deployment/waits.h"
#include "coordinator/engine/engine.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/membership.pb.h"

namespace strata {

class Deployment : public PlacedModel {
 public:
  // `plan` names nodes by name; incarnations are filled in by Load. `options` are complete.
  Deployment(uint64_t id, std::shared_ptr<const DeployedModel> model, v1::Plan plan,
             v1::LoadOptions load_options, RotaryBlob rotary, const DeploymentOptions& options,
             DeploymentHost* host);

  DeploymentState state() const { return StateOf(phase_); }
  const absl::Status& problem() const { return problem_; }
  // For what comes over its links, and what nodes say of them.
  Pipeline* pipeline() { return &pipeline_; }
  // Null unless ready, or requests wait for a worker's return.
  Engine* engine() const { return pipeline_.engine(); }
  std::vector<v1::LoadModelProgress::Worker> Progress() const {
    return loads_.Describe(Loads(phase_));
  }
  // What it waits for now.
  std::vector<Waiting> Waits() const;
  // Loads that failed, and when the next one begins by itself.
  const LoadRetry& retry() const { return retry_; }
  // What its workers wait for is not theirs to hasten: they are not silent until now.
  void ExcuseSilence() { loads_.Excuse(); }
  // One that failed, and is to be loaded again by now, waits for its nodes from here on.
  bool BeginRetry(TimePoint now);

  // Begins (again) on nodes whose incarnations are `incarnations`, by name; a new epoch.
  void Load(const std::map<std::string, uint64_t>& incarnations);
  // Ends everything: sessions fail with `why`, workers unload.
  void Unload(const absl::Status& why);
  // Other KV pages on the same nodes and layers, a new epoch; sessions wait meanwhile and are
  // computed again. Begins only if all of them fit `plan`; FAILED_PRECONDITION (KV_IN_USE, or
  // NOT_READY). When it fails later, the deployment goes back to what it was: resize_problem().
  absl::Status Resize(const v1::Plan& plan, const v1::LoadOptions& options);
  // Whether Resize would begin, but for changes in between.
  absl::Status CheckResize(const v1::Plan& plan) const;
  // While the store is told that it ends, no new sessions begin.
  void Hold(bool hold) { held_ = hold; }
  bool held() const { return held_; }
  // The engine is there and takes requests, if only to queue them.
  bool serves() const {
    return engine() != nullptr && !leaving_ && !held_ &&
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
  std::optional<TimePoint> NextWake() const;
  void Tick(TimePoint now);

 private:
  // The engine ends; nobody waits for it any more.
  void EndRequests(const absl::Status& why);
  void LoadFailed(const absl::Status& why);
  // The KV of the plan has changed, or has changed back.
  void LoadChanged();
  void OnLinked(uint64_t epoch);
  // A node is gone: requests that ran wait for it, as long as the engine lets them.
  void AwaitNode(const absl::Status& why);
  // `event`: kWait or kFail.
  void GiveUp(DeploymentEvent event, const absl::Status& why);

  const DeploymentOptions options_;
  DeploymentHost* const host_;

  DeploymentPhase phase_ = DeploymentPhase::kWaiting;
  absl::Status problem_;
  bool leaving_ = false;  // A node is: no new sessions.
  bool held_ = false;
  TimePoint state_since_{};  // Of kWaiting, and of linking.
  LoadRetry retry_;
  StageLoads loads_;
  Pipeline pipeline_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_H_
