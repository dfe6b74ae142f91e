#include "coordinator/deployment/deployment.h"

#include <algorithm>
#include <utility>

#include "common/app/log.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/deployment/errors.h"

namespace strata {

Deployment::Deployment(uint64_t id, std::shared_ptr<const DeployedModel> model, v1::Plan plan,
                       v1::LoadOptions load_options, RotaryBlob rotary,
                       const DeploymentOptions& options, DeploymentHost* host)
    : PlacedModel(id, std::move(model), std::move(plan), std::move(load_options), std::move(rotary),
                  [host, id] { host->RecordLater(id); }),
      options_(options),
      host_(host),
      state_since_(host->Now()),
      retry_(options_.retry),
      search_(options_.placement_again),
      better_(options_.better_after),
      loads_(StageLoads::Of::kStanding, this, options_, host),
      next_loads_(StageLoads::Of::kNext, this, options_, host),
      pipeline_(this, options_, host,
                {.may_link = [this] { return !HoldsRequests(phase_); },
                 .use_epoch = [this](uint64_t epoch) { return UseEpoch(epoch); },
                 .skip_to = [this](uint64_t epoch) { SkipTo(epoch); },
                 .may_move = [this] { return MayLeaveBroken(); },
                 .linked = [this](uint64_t epoch) { OnLinked(epoch); },
                 .linked_ahead = [this](const absl::Status& status) { OnLinkedAhead(status); }}) {
  AwaitNodes(options_.placement_grace);
}

// ---- Loading.

void Deployment::Load(const std::map<std::string, uint64_t>& incarnations) {
  if (!HoldsRequests(phase_)) {
    EndRequests(Error(absl::StatusCode::kUnavailable, "RELOADING",
                      "model '" + model()->name + "' is being loaded again")
                    .Hint("send the request again in a moment"));
  }
  EndSearch();
  phase_ = NextPhase(phase_, DeploymentEvent::kLoad);
  retry_.Begin();
  if (absl::Status status = Renew(incarnations); !status.ok()) {
    GiveUp(DeploymentEvent::kFail, status);
    return;
  }
  pipeline_.ForgetLinkFault();
  if (const std::string missing = loads_.Send(); !missing.empty()) {
    OnNodeLost(missing);
    return;
  }
  LogInfo({{"model", model()->name},
           {"deployment", id()},
           {"epoch", plan().epoch()},
           {"stages", static_cast<uint32_t>(OnlyPipeline(plan()).stages_size())}},
          "the model loads");
}

void Deployment::OnLoadProgress(const std::string& node, const v1::LoadProgress& progress) {
  if (prepares()) {
    OnPreparedProgress(node, progress);
    return;
  }
  if (!Loads(phase_) || progress.epoch() != plan().epoch() || !Uses(node)) {
    return;
  }
  loads_.OnProgress(node, progress);
  if (progress.phase() == v1::LoadProgress::PHASE_FAILED) {
    v1::ErrorDetail detail = progress.error();
    detail.set_node(node);
    LoadFailed(Annotate(StatusOf(detail), "node '" + node + "' cannot load its layers"));
    return;
  }
  if (!loads_.AllReady()) {
    return;
  }
  const DeploymentPhase before = phase_;
  phase_ = NextPhase(phase_, DeploymentEvent::kLoaded);
  if (before == DeploymentPhase::kReloading) {
    LogInfo({{"model", model()->name},
             {"deployment", id()},
             {"epoch", plan().epoch()},
             {"requests", pipeline_.live_requests()}},
            "requests go on");
    pipeline_.Resume();
  } else if (before == DeploymentPhase::kLoading) {
    state_since_ = host_->Now();
    moves_in_vain_ = 0;
    rows_when_broken_ = 0;
    pipeline_.Start();
  } else {
    KeepChange();
    host_->OnPlacement(id(), plan(), true, true);
    const EngineSnapshot snapshot = engine()->Snapshot(host_->Now());
    LogInfo({{"model", model()->name},
             {"deployment", id()},
             {"epoch", plan().epoch()},
             {"kv_tokens", snapshot.kv_tokens},
             {"limiting_node", snapshot.limiting_node}},
            "the model goes on with its new KV");
    pipeline_.Resume();
  }
}

void Deployment::OnLinked(uint64_t epoch) {
  UnloadLeft();
  const DeploymentPhase before = phase_;
  phase_ = NextPhase(phase_, DeploymentEvent::kLinked);
  if (before != phase_) {
    avoided_.clear();
    if (ToBeLeft() && MayMove()) search_.Want(host_->Now());
    retry_.Forget();
    host_->OnPlacement(id(), plan(), true, true);
    const EngineSnapshot snapshot = engine()->Snapshot(host_->Now());
    LogInfo({{"model", model()->name},
             {"deployment", id()},
             {"epoch", epoch},
             {"kv_tokens", snapshot.kv_tokens},
             {"limiting_node", snapshot.limiting_node}},
            "the model is ready");
  }
}

// ---- Other KV.

absl::Status Deployment::CheckResize(const v1::Plan& plan) const {
  if (prepares()) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_READY",
                 "model '" + model()->name + "' is being moved to other nodes")
        .Hint("try again once it is ready; see `strata model show " + model()->name + "`");
  }
  if (phase_ != DeploymentPhase::kReady || engine() == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_READY",
                 "model '" + model()->name + "' is " + DeploymentStateName(state()))
        .Hint("try again once it is ready; see `strata model show " + model()->name + "`");
  }
  return pipeline_.CheckFits(plan);
}

absl::Status Deployment::Resize(const v1::Plan& plan, const v1::LoadOptions& options) {
  RETURN_IF_ERROR(CheckResize(plan));
  RETURN_IF_ERROR(BeginChange(plan, options));
  LoadChanged();
  return absl::OkStatus();
}

void Deployment::LoadChanged() {
  phase_ = NextPhase(phase_, DeploymentEvent::kResize);
  pipeline_.Suspend();
  pipeline_.ForgetLinkFault();
  if (const std::string missing = loads_.Send(); !missing.empty()) {
    OnNodeLost(missing);
  }
}

// ---- What ends.

void Deployment::Unload(const absl::Status& why) {
  EndRequests(why);
  DropMove();
  UnloadLeft();
  loads_.TakeBack();
  phase_ = NextPhase(phase_, DeploymentEvent::kWait);
}

void Deployment::EndRequests(const absl::Status& why) {
  phase_ = NextPhase(phase_, DeploymentEvent::kRequestsEnd);
  pipeline_.Stop(why);
}

void Deployment::GiveUp(DeploymentEvent event, const absl::Status& why) {
  LogError({{"model", model()->name}, {"deployment", id()}, {"epoch", plan().epoch()}},
           Describe(why));
  const bool was_loaded = engine() != nullptr;  // What links refuse, a new load may mend.
  EndRequests(NotServed(model()->name, why));
  DropMove();
  DropChange(why);  // What is loaded next is what is known to fit.
  phase_ = NextPhase(phase_, event);
  problem_ = why;
  if (event == DeploymentEvent::kFail) {
    state_since_ = host_->Now();
    retry_.Failed(why, was_loaded || MayGoByItself(why), host_->Now());
  } else {
    AwaitNodes(nanoseconds(0));
  }
  UnloadLeft();
  loads_.TakeBack();
}

void Deployment::OnNodeLost(const std::string& node) {
  AbandonMoveTo(node, "is lost");
  if (!Uses(node) || state() == DeploymentState::kWaiting || state() == DeploymentState::kFailed) {
    return;
  }
  const absl::Status why =
      Error(absl::StatusCode::kUnavailable, "NODE_LOST",
            "node '" + node + "', which holds layers of model '" + model()->name + "', is lost")
          .Node(node)
          .Hint("start its worker again, or place the model anew with `strata model load " +
                model()->name + "`; then send the request again");
  const bool may_wait =
      phase_ != DeploymentPhase::kResizing && load_options().recovery() != v1::RECOVERY_OFF;
  const bool waits = MayMove() ? engine() != nullptr : !leaving_ && pipeline_.live_requests() > 0;
  if (may_wait && waits) {
    AwaitNode(why);
  } else {
    GiveUp(DeploymentEvent::kWait, why);
  }
}

void Deployment::AwaitNode(const absl::Status& why) {
  LogError({{"model", model()->name}, {"deployment", id()}, {"epoch", plan().epoch()}},
           Describe(why));
  DropMove();
  const bool holds_requests = HoldsRequests(phase_);
  phase_ = NextPhase(phase_, DeploymentEvent::kAwaitNode);
  if (!holds_requests || MayMove()) {
    pipeline_.LoseStages(why, MayMove() ? options_.placement_timeout : options_.recovery_timeout);
  }
  if (!holds_requests) {
    LogInfo({{"model", model()->name},
             {"deployment", id()},
             {"node", DetailOf(why).node()},
             {"requests", pipeline_.live_requests()}},
            MayMove() ? "requests wait for other nodes" : "requests wait for the node");
  }
  AwaitNodes(nanoseconds(0));
  problem_ = why;
  UnloadLeft();
  loads_.TakeBack();
}

// ---- Waiting, and time.

void Deployment::OnNodeJoined(const std::string& node) {
  search_.Hasten(host_->Now());
  better_.OnNodes(host_->Now());
  if (Uses(node) && phase_ == DeploymentPhase::kFailed) {
    phase_ = NextPhase(phase_, DeploymentEvent::kWait);
    AwaitNodes(options_.placement_grace);
  }
}

bool Deployment::BeginRetry(TimePoint now) {
  if (phase_ != DeploymentPhase::kFailed || !retry_.due().has_value() || now < *retry_.due()) {
    return false;
  }
  LogInfo({{"model", model()->name}, {"deployment", id()}, {"failed", retry_.failed()}},
          "the model is loaded again: what made it fail may have gone");
  phase_ = NextPhase(phase_, DeploymentEvent::kWait);
  AwaitNodes(options_.placement_grace);
  retry_.Begin();
  return true;
}

void Deployment::SetWaitingFor(const std::vector<std::string>& nodes) {
  if (!search_.problem().ok()) {
    return;  // That says more.
  }
  std::string names;
  for (const std::string& node : nodes) {
    names += (names.empty() ? "'" : ", '") + node + "'";
  }
  problem_ =
      Error(absl::StatusCode::kUnavailable, "WAITING_FOR_NODES",
            "model '" + model()->name + "' waits for " + names)
          .Node(nodes.empty() ? "" : nodes.front())
          .Hint("start strata-worker there, or place the model anew with `strata model load " +
                model()->name + "`");
}

std::vector<Waiting> Deployment::Waits() const {
  std::vector<Waiting> waits;
  Waiting wait;
  wait.model = model()->name;
  wait.since = state_since_;
  if (Loads(phase_) || LoadsNext()) {
    return prepares() ? next_loads_.Waits() : loads_.Waits();
  }
  if (phase_ == DeploymentPhase::kLinking || phase_ == DeploymentPhase::kRelinking || prepares()) {
    for (const std::string& node :
         prepares() ? pipeline_.UnlinkedAhead() : pipeline_.UnfencedNodes()) {
      wait.what = "node " + node + " to link its stage of model " + model()->name;
      wait.node = node;
      wait.limit = prepares() ? AheadPatience() : options_.step_timeout + options_.recovery_timeout;
      wait.hint = "see the log of strata-worker on " + node + ", and `strata node show " + node +
                  "` for its links";
      waits.push_back(wait);
    }
  } else if (state() == DeploymentState::kWaiting && !problem_.ok()) {
    wait.node = DetailOf(problem_).node();
    wait.what = (wait.node.empty() ? "the nodes" : "node " + wait.node) + " of model " +
                model()->name + " to come back";
    waits.push_back(wait);
  }
  return waits;
}

std::optional<TimePoint> Deployment::NextWake() const {
  std::optional<TimePoint> wake = pipeline_.NextWake();
  const auto at = [&wake](std::optional<TimePoint> time) {
    if (time.has_value()) {
      wake = std::min(wake.value_or(*time), *time);
    }
  };
  if (Loads(phase_)) {
    at(loads_.NextLate());
  }
  if (LoadsNext()) {
    at(next_loads_.NextLate());
  }
  if (ahead_ != 0) {
    at(pipeline_.links_ahead() ? ahead_until_ : host_->Now());
  }
  if (phase_ == DeploymentPhase::kFailed) {
    at(retry_.due());
  }
  if (state() == DeploymentState::kWaiting || (ToBeLeft() && !prepares())) {
    at(search_.NextWake());
  }
  if (MayBeBetter()) {
    at(better_.NextWake());
  }
  return wake;
}

void Deployment::Tick(TimePoint now) {
  pipeline_.BeginTurn();
  if (Loads(phase_)) {
    if (const absl::Status late = loads_.Late(now); !late.ok()) {
      LoadFailed(late);
    }
  }
  if (LoadsNext()) {
    if (const absl::Status late = next_loads_.Late(now); !late.ok()) {
      AbandonMove(late);
    }
  }
  pipeline_.Tick(now);
  TickAhead(now);
  if (const absl::Status broken = pipeline_.TakeBroken(); !broken.ok()) {
    AwaitOthers(broken);
  }
  if (HoldsRequests(phase_) &&
      (engine()->down() || (!MayMove() && engine()->live_sessions() == 0))) {
    EndRequests(problem_.ok() ? absl::UnavailableError("nobody waits any more") : problem_);
  }
  if (const absl::Status epoch = pipeline_.TakeEpochProblem(); !epoch.ok()) {
    GiveUp(DeploymentEvent::kFail, epoch);
  } else if (leaving_ && !LeavesWithRequests() && !Moves() && engine() != nullptr &&
             engine()->live_sessions() == 0) {
    GiveUp(DeploymentEvent::kWait, absl::Status(problem_));
  } else if ((phase_ == DeploymentPhase::kLinking || phase_ == DeploymentPhase::kRelinking) &&
             engine()->down()) {
    // Loaded, but its stages cannot be linked.
    GiveUp(DeploymentEvent::kFail,
           pipeline_.link_fault().ok()
               ? absl::Status(Error(absl::StatusCode::kUnavailable, "LINKS_NOT_OPENED",
                                    "the stages of model '" + model()->name +
                                        "' could not be linked in time")
                                  .Hint("`strata node list` names nodes that cannot be reached"))
               : pipeline_.link_fault());
  }
}

}  // namespace strata
