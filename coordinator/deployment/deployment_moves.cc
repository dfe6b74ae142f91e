// How a deployment goes to other nodes.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "common/app/log.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/deployment/deployment.h"
#include "coordinator/deployment/move_policy.h"

namespace strata {
namespace {

// So often a model is placed anew without computing a row, until its requests fail.
constexpr int kMostMovesInVain = 3;
// Steps in flight are awaited before a switch; what comes no more is computed again.
constexpr nanoseconds kMostDraining = std::chrono::seconds(1);

}  // namespace

void Deployment::LoadFailed(const absl::Status& why) {
  if (!changes() && MayMove() && HoldsRequests(phase_) && moves_in_vain_ < kMostMovesInVain) {
    AwaitOthers(why);
  } else if (!changes()) {
    GiveUp(DeploymentEvent::kFail, why);
  } else if (absl::Status undone = UndoChange(why); undone.ok()) {
    LoadChanged();
  } else {
    GiveUp(DeploymentEvent::kFail, undone);
  }
}

// ---- Other nodes.

void Deployment::AwaitOthers(const absl::Status& why) {
  ++moves_in_vain_;
  if (const std::string node = DetailOf(why).node(); !node.empty()) {
    avoided_.insert(node);
  }
  AwaitNode(why);
}

bool Deployment::MayLeaveBroken() {
  if (!MayMove() || (!Runs(phase_) && phase_ != DeploymentPhase::kRelinking)) {
    return false;
  }
  const uint64_t rows = engine()->Snapshot(host_->Now()).counters.rows_committed;
  if (rows > std::exchange(rows_when_broken_, rows)) {
    moves_in_vain_ = 0;  // It worked for a while.
  }
  return moves_in_vain_ < kMostMovesInVain;
}

void Deployment::AwaitNodes(nanoseconds grace) {
  state_since_ = host_->Now();
  if (MayMove()) {
    search_.Want(state_since_ + grace);
  }
}

void Deployment::SearchFailed(const absl::Status& why) {
  search_.Failed(why, host_->Now());
  avoided_.clear();  // They are better than none.
  if (state() == DeploymentState::kWaiting && !search_.problem().ok()) {
    problem_ = Annotate(why, "model '" + model()->name +
                                 "' waits for nodes, and cannot do with those that are there");
  }
}

absl::Status Deployment::Move(const v1::Plan& plan, MoveWay way, MoveClass numerics) {
  if (prepares() || phase_ == DeploymentPhase::kRelinking) {
    return Error(absl::StatusCode::kFailedPrecondition, "MOVE_IN_PROGRESS",
                 "model '" + model()->name + "' is being moved to other nodes already")
        .Hint("try again once it is ready; see `strata model show " + model()->name + "`");
  }
  const bool runs = phase_ == DeploymentPhase::kReady && engine() != nullptr;
  if (state() != DeploymentState::kWaiting && !runs) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_READY",
                 "model '" + model()->name + "' is " + DeploymentStateName(state()))
        .Hint("try again once it is ready; see `strata model show " + model()->name + "`");
  }
  const bool same_class = plan.numerics_class().name() == this->plan().numerics_class().name();
  if (!same_class && numerics == MoveClass::kSame) {
    return Error(absl::StatusCode::kFailedPrecondition, "NUMERICS_CHANGED",
                 "model '" + model()->name + "' is computed in the class " +
                     this->plan().numerics_class().name() + ", the other nodes compute in " +
                     plan.numerics_class().name())
        .Hint("unload it, and load it there");
  }
  const absl::Status fits = engine() != nullptr ? pipeline_.CheckFits(plan) : absl::OkStatus();
  if (!move_policy::MayMove(fits.ok())) {
    return fits;
  }
  move_problem_ = absl::OkStatus();
  if (!same_class) {
    LogWarn({{"model", model()->name},
             {"deployment", id()},
             {"from", this->plan().numerics_class().name()},
             {"to", plan.numerics_class().name()}},
            "the model moves to another numerics class: no nodes of its own had room");
  }
  LogInfo({{"model", model()->name},
           {"deployment", id()},
           {"requests", pipeline_.live_requests()},
           {"stages", static_cast<uint32_t>(OnlyPipeline(plan).stages_size())}},
          !runs                      ? "the model moves to other nodes"
          : way == MoveWay::kPrepare ? "the model moves to other nodes, which load beside those "
                                       "that serve"
                                     : "the model moves to other nodes, and its requests wait: "
                                       "they cannot load beside those that serve");
  if (runs && way == MoveWay::kPrepare) {
    Prepare(plan);
    return absl::OkStatus();
  }
  if (runs) {
    loads_.TakeBack();
  }
  std::map<std::string, uint64_t> incarnations;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    for (const v1::PlanRank& rank : stage.ranks()) {
      incarnations[rank.node()] = rank.incarnation();
    }
  }
  Replace(plan);
  if (engine() != nullptr) {
    phase_ = NextPhase(phase_, DeploymentEvent::kMove);
    pipeline_.Suspend();
  }
  Load(incarnations);
  return absl::OkStatus();
}

void Deployment::EndSearch() {
  problem_ = absl::OkStatus();
  leaving_ = false;
  std::erase_if(drained_, [this](const std::string& node) { return !Uses(node); });
  search_.End();
}

// ---- Other nodes beside those that serve.

void Deployment::Prepare(const v1::Plan& plan) {
  phase_ = NextPhase(phase_, DeploymentEvent::kPrepare);
  PrepareNext(plan);
  if (const std::string missing = next_loads_.Send(); !missing.empty()) {
    OnNodeLost(missing);
  } else if (next_loads_.AllReady()) {
    Switch();  // All of it stays.
  }
}

void Deployment::OnPreparedProgress(const std::string& node, const v1::LoadProgress& progress) {
  if (progress.epoch() != next()->epoch() || !PlanUses(*next(), node)) {
    return;
  }
  next_loads_.OnProgress(node, progress);
  if (progress.phase() == v1::LoadProgress::PHASE_FAILED) {
    v1::ErrorDetail detail = progress.error();
    detail.set_node(node);
    AbandonMove(Annotate(StatusOf(detail), "node '" + node + "' cannot load its layers"));
  } else if (move_policy::MaySwitch(next_loads_.AllReady())) {
    LinkAhead();
  }
}

void Deployment::LinkAhead() {
  if (ahead_ != 0) {
    return;
  }
  for (const v1::PlanStage& stage : OnlyPipeline(*next()).stages()) {
    if (!host_->LinksAhead(FirstRank(stage).node())) {
      Switch();
      return;
    }
  }
  ahead_ = EpochAhead();
  ahead_until_ = host_->Now() + AheadPatience();
  pipeline_.LinkAhead(ahead_, *next(), FencesAhead());
}

nanoseconds Deployment::AheadPatience() const {
  return (KvMovesToNext() ? 4 : 1) * options_.step_timeout;
}

void Deployment::OnLinkedAhead(const absl::Status& status) {
  if (!status.ok()) {
    AbandonMove(status);
    return;
  }
  drains_ = true;
  ahead_until_ = host_->Now() + kMostDraining;
  pipeline_.Drain(true);
  TickAhead(host_->Now());
}

void Deployment::TickAhead(TimePoint now) {
  if (ahead_ == 0) {
    return;
  }
  const bool late = now >= ahead_until_;
  if (!pipeline_.links_ahead() || (drains_ && (pipeline_.drained() || late))) {
    Switch();
  } else if (late) {
    const std::vector<std::string> missing = pipeline_.UnlinkedAhead();
    const std::string node =
        missing.empty() ? FirstRank(OnlyPipeline(*next()).stages(0)).node() : missing.back();
    AbandonMove(Error(absl::StatusCode::kUnavailable, "LINKS_NOT_OPENED",
                      "node '" + node + "' did not link its stage in time")
                    .Node(node)
                    .Hint("`strata node list` names nodes that cannot be reached"));
  }
}

void Deployment::Switch() {
  // Requests have come since.
  if (const absl::Status fits = pipeline_.CheckFits(*next()); !move_policy::MayMove(fits.ok())) {
    AbandonMove(fits);
    return;
  }
  const bool keeps_kv = KvMovesToNext() && pipeline_.CarriedAhead();
  std::vector<std::pair<v1::PlanRank, uint64_t>> left = LeftStages();
  if (const absl::Status taken = TakeNext(pipeline_.links_ahead() ? ahead_ : 0); !taken.ok()) {
    AbandonMove(taken);
    return;
  }
  ahead_ = 0;
  drains_ = false;
  LogInfo({{"model", model()->name},
           {"deployment", id()},
           {"epoch", plan().epoch()},
           {"requests", pipeline_.live_requests()}},
          "the model's requests go on on other nodes");
  phase_ = NextPhase(phase_, DeploymentEvent::kSwitch);
  EndSearch();
  state_since_ = host_->Now();
  if (keeps_kv) {
    pipeline_.Repoint();
  } else {
    pipeline_.Suspend();
  }
  pipeline_.ForgetLinkFault();
  pipeline_.Resume();
  loads_.TakeOver(next_loads_);
  left_ = std::move(left);
  if (!keeps_kv) {
    UnloadLeft();
  }
}

void Deployment::UnloadLeft() {
  for (const auto& [rank, loaded_epoch] : std::exchange(left_, {})) {
    loads_.Unload(rank, loaded_epoch);
  }
}

void Deployment::AbandonMove(const absl::Status& why) {
  LogError({{"model", model()->name}, {"deployment", id()}},
           "the model stays where it is: " + Describe(why));
  DropMove();
  phase_ = NextPhase(phase_, DeploymentEvent::kAbandon);
  move_problem_ = Annotate(why, "model '" + model()->name + "' stays where it is");
  const std::string node = DetailOf(why).node();
  if (!node.empty() && avoided_.insert(node).second && ToBeLeft()) {
    search_.End();
    search_.Want(host_->Now());  // Without that one.
    return;
  }
  search_.Failed(why, host_->Now());
}

void Deployment::AbandonMoveTo(const std::string& node, const std::string& because) {
  if (prepares() && PlanUses(*next(), node) && !Uses(node)) {
    AbandonMove(Error(absl::StatusCode::kUnavailable, "NODE_LOST",
                      "node '" + node + "', which loaded layers of model '" + model()->name +
                          "', " + because)
                    .Node(node));
  }
}

void Deployment::DropMove() {
  if (next() != nullptr) {
    next_loads_.TakeBack();
    DropNext();
    pipeline_.DropAhead();
    ahead_ = 0;
    if (std::exchange(drains_, false) && engine() != nullptr) {
      pipeline_.Drain(false);
    }
  }
}

// ---- Nodes that are to be left.

void Deployment::OnNodeLeaving(const std::string& node) {
  AbandonMoveTo(node, "is being stopped");
  if (!Uses(node) || leaving_ || state() == DeploymentState::kWaiting ||
      state() == DeploymentState::kFailed) {
    return;
  }
  const absl::Status why =
      Error(absl::StatusCode::kUnavailable, "NODE_STOPPED",
            "node '" + node + "', which holds layers of model '" + model()->name +
                "', is being stopped")
          .Node(node)
          .Hint("start its worker again, or place the model anew with `strata model load " +
                model()->name + "`; then send the request again");
  if (engine() == nullptr) {
    GiveUp(DeploymentEvent::kWait, why);
    return;
  }
  LogInfo({{"model", model()->name},
           {"deployment", id()},
           {"node", node},
           {"requests", pipeline_.live_requests()}},
          "requests in flight may end before the node stops");
  leaving_ = true;
  problem_ = why;
  if (MayMove() && phase_ == DeploymentPhase::kReady) {
    search_.End();  // What was found wanting before may be there now.
    search_.Want(host_->Now());
  } else if (MayMove() && prepares()) {
    search_.Want(host_->Now());
  }
}

void Deployment::OnNodeDraining(const std::string& node, bool draining) {
  if (draining) {
    AbandonMoveTo(node, "is drained");
  } else {
    better_.OnNodes(host_->Now());
  }
  if (!Uses(node) || !MayMove()) {
    return;
  }
  if (draining) {
    drained_.insert(node);
    search_.Want(host_->Now());
    return;
  }
  drained_.erase(node);
  if (state() != DeploymentState::kWaiting && !ToBeLeft()) {
    ForgetMoveProblem();
    search_.End();
  }
}

}  // namespace strata
