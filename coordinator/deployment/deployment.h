// A placed model on its way to requests: has its stages loaded, fenced and linked, and runs the
// engine over them. A core: one thread, the event loop's in the process; time and the network are
// the host's.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_H_
#define STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/deployment/better_search.h"
#include "coordinator/deployment/deployed_model.h"
#include "coordinator/deployment/deployment_host.h"
#include "coordinator/deployment/deployment_options.h"
#include "coordinator/deployment/deployment_phase.h"
#include "coordinator/deployment/load_retry.h"
#include "coordinator/deployment/pipeline.h"
#include "coordinator/deployment/placed_model.h"
#include "coordinator/deployment/placement_search.h"
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
    return prepares() ? next_loads_.Describe(true) : loads_.Describe(Loads(phase_));
  }
  // What it waits for now.
  std::vector<Waiting> Waits() const;
  // Loads that failed, and when the next one begins by itself.
  const LoadRetry& retry() const { return retry_; }
  // What its workers wait for is not theirs to hasten: they are not silent until now.
  void ExcuseSilence() {
    loads_.Excuse();
    next_loads_.Excuse();
  }
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
  // Whether it waits for nodes, or is to leave some, and is to be placed on others by now.
  // Whoever asks then calls BeginSearch, and later Move with a plan, or SearchFailed with why there
  // is none.
  bool WantsPlacement(TimePoint now) const {
    return (state() == DeploymentState::kWaiting || ToBeLeft()) && !prepares() && search_.Due(now);
  }
  void BeginSearch() { search_.Asked(); }
  // Whether it runs, and a faster placement is to be looked for by now, of which better() is then
  // to be told.
  bool WantsBetter(TimePoint now) const { return MayBeBetter() && better_.Due(now); }
  BetterSearch& better() { return better_; }
  // It moves there.
  void MovesToBetter() { better_.Moves(host_->Now()); }
  // Whether it has requests that would wait for such a move, and stays for now on their account
  // (BetterSearch::Postpone).
  bool PostponesBetter() { return pipeline_.live_requests() > 0 && better_.Postpone(host_->Now()); }
  // Whether what was looked for is still wanted.
  bool searches() const { return search_.asked(); }
  // Nodes that have just failed it: not to be looked for at first.
  const std::set<std::string>& avoided() const { return avoided_; }
  void SearchFailed(const absl::Status& why);
  // How a model that runs goes to other nodes; what waits for nodes loads at once.
  enum class MoveWay {
    kPrepare,  // They load beside those that serve, until they take their place.
    kPause,    // Sessions wait while they load, in memory that the others leave.
  };
  // Another numerics class is refused, or sessions go on in it and are told.
  enum class MoveClass { kSame, kAny };
  // Other nodes, another number of stages, other cuts; a new epoch. `plan` names nodes with their
  // incarnations. Sessions are computed again there. FAILED_PRECONDITION (NOT_READY where it
  // neither waits for nodes nor runs, MOVE_IN_PROGRESS, NUMERICS_CHANGED, KV_IN_USE) changes
  // nothing.
  absl::Status Move(const v1::Plan& plan, MoveWay way, MoveClass numerics = MoveClass::kSame);
  // Whether PlacedModel::next loads beside what serves; why the newest such was given up.
  bool prepares() const { return phase_ == DeploymentPhase::kPreparing; }
  const absl::Status& move_problem() const { return move_problem_; }
  // It is wanted where it is.
  void ForgetMoveProblem() { move_problem_ = absl::OkStatus(); }

  // While the store is told that it ends, no new sessions begin.
  void Hold(bool hold) { held_ = hold; }
  bool held() const { return held_; }
  // The engine is there and takes requests, if only to queue them.
  bool serves() const {
    const bool there = Runs(phase_) || phase_ == DeploymentPhase::kResizing;
    return engine() != nullptr && !held_ &&
           ((there && (!leaving_ || LeavesWithRequests())) || Moves());
  }

  // Events.
  void OnNodeLost(const std::string& node);
  // The node was told to stop. A model that may move leaves it with its requests; else, and where
  // no other node has room, new requests are refused, and when those there have ended its stages
  // are unloaded.
  void OnNodeLeaving(const std::string& node);
  // Nothing is to be placed on the node any more, or it may be again: a model that may move leaves
  // it with its requests as soon as others have room.
  void OnNodeDraining(const std::string& node, bool draining);
  // A node joined: what had failed on it may succeed now, and it may take layers.
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
  // It waits for nodes from now on, and may do with others after `grace`.
  void AwaitNodes(nanoseconds grace);
  // Whether a node of it is told to stop, or drained.
  bool ToBeLeft() const { return leaving_ || !drained_.empty(); }
  // Requests queue from a node's loss until the model is linked elsewhere.
  bool Moves() const {
    return phase_ == DeploymentPhase::kRelinking || (HoldsRequests(phase_) && MayMove());
  }
  // A node is told to stop, and others are looked for or load.
  bool LeavesWithRequests() const {
    return leaving_ && MayMove() && Runs(phase_) && search_.wanted() && search_.problem().ok();
  }
  // What was to be left no longer is, or is left.
  void EndSearch();
  // Whether it might leave its nodes for faster ones.
  bool MayBeBetter() const {
    return phase_ == DeploymentPhase::kReady && MayMove() && !ToBeLeft() && !held_;
  }
  // Loads the plan beside what serves.
  void Prepare(const v1::Plan& plan);
  void OnPreparedProgress(const std::string& node, const v1::LoadProgress& progress);
  // All of it is loaded: its links are opened ahead, where all its workers know of that. Then steps
  // in flight are awaited, and it takes the place of what serves.
  void LinkAhead();
  // How long that may take: longer where pages come over too.
  nanoseconds AheadPatience() const;
  void OnLinkedAhead(const absl::Status& status);
  // The steps have come back, or late. Or what serves had a fault, which has closed the links:
  // requests wait anyhow. Or the links take too long.
  void TickAhead(TimePoint now);
  void Switch();
  // Stages that the switch left have given their KV, or it is too late.
  void UnloadLeft();
  // It is given up because of `why`; what serves goes on.
  void AbandonMove(const absl::Status& why);
  // It is on a node that nothing else of the model is on, and that cannot be had any more.
  void AbandonMoveTo(const std::string& node, const std::string& because);
  // Takes it off its workers, if there is one.
  void DropMove();
  // PlacedModel::next loads; it is not linked yet.
  bool LoadsNext() const { return prepares() && ahead_ == 0; }
  // A move failed because of `why`, or a placement broke: other nodes, without the one that it
  // names.
  void AwaitOthers(const absl::Status& why);
  // Whether it is to be placed anew, its nodes being there and its pipeline broken.
  bool MayLeaveBroken();
  // Whether layers of a lost node go to others.
  bool MayMove() const { return load_options().recovery() == v1::RECOVERY_MOVE; }
  // `event`: kWait or kFail.
  void GiveUp(DeploymentEvent event, const absl::Status& why);

  const DeploymentOptions options_;
  DeploymentHost* const host_;

  DeploymentPhase phase_ = DeploymentPhase::kWaiting;
  absl::Status problem_;
  bool leaving_ = false;  // A node is: no new sessions.
  bool held_ = false;
  int moves_in_vain_ = 0;          // Since a row was computed.
  uint64_t rows_when_broken_ = 0;  // The engine's, when it was asked last.
  std::set<std::string> avoided_;
  std::set<std::string> drained_;  // Nodes with layers of it.
  absl::Status move_problem_;
  TimePoint state_since_{};  // Of kWaiting, and of linking.
  // While links are opened ahead: for which epoch (0: they are not), and until when.
  uint64_t ahead_ = 0;
  TimePoint ahead_until_{};
  bool drains_ = false;  // They are open: steps in flight are awaited, until then.
  // Stages that give their KV to those that took their places, by the epochs of their Loads.
  std::vector<std::pair<v1::PlanRank, uint64_t>> left_;
  LoadRetry retry_;
  PlacementSearch search_;
  BetterSearch better_;
  StageLoads loads_;
  StageLoads next_loads_;
  Pipeline pipeline_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_DEPLOYMENT_H_
