#include "coordinator/deployment/deployment.h"

#include <algorithm>
#include <utility>

#include "common/app/log.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/deployment/errors.h"
#include "coordinator/deployment/move_policy.h"

namespace strata {
namespace {

// So often a model is placed anew without computing a row, until its requests fail.
constexpr int kMostMovesInVain = 3;

}  // namespace

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
      loads_(this, options_, host),
      pipeline_(this, options_, host,
                {.may_link = [this] { return !HoldsRequests(phase_); },
                 .use_epoch = [this](uint64_t epoch) { return UseEpoch(epoch); },
                 .skip_to = [this](uint64_t epoch) { SkipTo(epoch); },
                 .may_move = [this] { return MayLeaveBroken(); },
                 .linked = [this](uint64_t epoch) { OnLinked(epoch); }}) {
  AwaitNodes(options_.placement_grace);
}

// ---- Loading.

void Deployment::Load(const std::map<std::string, uint64_t>& incarnations) {
  if (!HoldsRequests(phase_)) {
    EndRequests(Error(absl::StatusCode::kUnavailable, "RELOADING",
                      "model '" + model()->name + "' is being loaded again")
                    .Hint("send the request again in a moment"));
  }
  problem_ = absl::OkStatus();
  leaving_ = false;
  std::erase_if(drained_, [this](const std::string& node) { return !Uses(node); });
  search_.End();
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
  const DeploymentPhase before = phase_;
  phase_ = NextPhase(phase_, DeploymentEvent::kLinked);
  if (before == DeploymentPhase::kLinking) {
    moving_ = leaving_ && MayMove();
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

void Deployment::LoadFailed(const absl::Status& why) {
  if (!changes() && moving_ && HoldsRequests(phase_) && moves_in_vain_ < kMostMovesInVain) {
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
  const bool linked = phase_ == DeploymentPhase::kReady;
  if (!MayMove() || (!linked && !(moving_ && phase_ == DeploymentPhase::kLinking))) {
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
  if (leaving_ && phase_ == DeploymentPhase::kReady) {
    moving_ = false;  // Requests in flight may end; new ones are refused.
  }
  if (state() == DeploymentState::kWaiting && !search_.problem().ok()) {
    problem_ = Annotate(why, "model '" + model()->name +
                                 "' waits for nodes, and cannot do with those that are there");
  }
}

absl::Status Deployment::Move(const v1::Plan& plan) {
  const bool runs = phase_ == DeploymentPhase::kReady && engine() != nullptr;
  if (state() != DeploymentState::kWaiting && !runs) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_READY",
                 "model '" + model()->name + "' is " + DeploymentStateName(state()));
  }
  if (plan.numerics_class().name() != this->plan().numerics_class().name()) {
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
  LogInfo({{"model", model()->name},
           {"deployment", id()},
           {"requests", pipeline_.live_requests()},
           {"stages", static_cast<uint32_t>(OnlyPipeline(plan).stages_size())}},
          "the model moves to other nodes");
  if (runs) {
    loads_.TakeBack();
  }
  std::map<std::string, uint64_t> incarnations;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    incarnations[OnlyRank(stage).node()] = OnlyRank(stage).incarnation();
  }
  Replace(plan);
  if (engine() != nullptr) {
    moving_ = true;
    phase_ = NextPhase(phase_, DeploymentEvent::kMove);
    pipeline_.Suspend();
  }
  Load(incarnations);
  return absl::OkStatus();
}

// ---- What ends.

void Deployment::Unload(const absl::Status& why) {
  EndRequests(why);
  loads_.TakeBack();
  phase_ = NextPhase(phase_, DeploymentEvent::kWait);
}

void Deployment::EndRequests(const absl::Status& why) {
  moving_ = false;
  phase_ = NextPhase(phase_, DeploymentEvent::kRequestsEnd);
  pipeline_.Stop(why);
}

void Deployment::GiveUp(DeploymentEvent event, const absl::Status& why) {
  LogError({{"model", model()->name}, {"deployment", id()}, {"epoch", plan().epoch()}},
           Describe(why));
  const bool was_loaded = engine() != nullptr;  // What links refuse, a new load may mend.
  EndRequests(NotServed(model()->name, why));
  DropChange(why);  // What is loaded next is what is known to fit.
  phase_ = NextPhase(phase_, event);
  problem_ = why;
  if (event == DeploymentEvent::kFail) {
    state_since_ = host_->Now();
    retry_.Failed(why, was_loaded || MayGoByItself(why), host_->Now());
  } else {
    AwaitNodes(nanoseconds(0));
  }
  loads_.TakeBack();
}

void Deployment::OnNodeLost(const std::string& node) {
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
  moving_ = MayMove();
  AwaitNodes(nanoseconds(0));
  problem_ = why;
  loads_.TakeBack();
}

void Deployment::OnNodeLeaving(const std::string& node) {
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
    moving_ = true;
    search_.Want(host_->Now());
  }
}

void Deployment::OnNodeDraining(const std::string& node, bool draining) {
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
    search_.End();
  }
}

// ---- Waiting, and time.

void Deployment::OnNodeJoined(const std::string& node) {
  search_.Hasten(host_->Now());
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
  if (Loads(phase_)) {
    return loads_.Waits();
  }
  if (phase_ == DeploymentPhase::kLinking) {
    for (const std::string& node : pipeline_.UnfencedNodes()) {
      wait.what = "node " + node + " to link its stage of model " + model()->name;
      wait.node = node;
      wait.limit = options_.step_timeout + options_.recovery_timeout;
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
  if (phase_ == DeploymentPhase::kFailed) {
    at(retry_.due());
  }
  if (state() == DeploymentState::kWaiting || ToBeLeft()) {
    at(search_.NextWake());
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
  pipeline_.Tick(now);
  if (const absl::Status broken = pipeline_.TakeBroken(); !broken.ok()) {
    AwaitOthers(broken);
  }
  if (HoldsRequests(phase_) && (engine()->down() || (!moving_ && engine()->live_sessions() == 0))) {
    EndRequests(problem_.ok() ? absl::UnavailableError("nobody waits any more") : problem_);
  }
  if (const absl::Status epoch = pipeline_.TakeEpochProblem(); !epoch.ok()) {
    GiveUp(DeploymentEvent::kFail, epoch);
  } else if (leaving_ && !moving_ && engine() != nullptr && engine()->live_sessions() == 0) {
    GiveUp(DeploymentEvent::kWait, absl::Status(problem_));
  } else if (phase_ == DeploymentPhase::kLinking && engine()->down()) {
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
