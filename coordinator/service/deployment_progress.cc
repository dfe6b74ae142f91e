// How far a load is, what it waits for and how long: the part of Deployment that looks at its own
// progress.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/app/log.h"
#include "common/plan.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/service/deployment.h"

namespace strata {
namespace {

const char* PhaseName(v1::LoadProgress::Phase phase) {
  switch (phase) {
    case v1::LoadProgress::PHASE_FETCHING:
      return "fetching";
    case v1::LoadProgress::PHASE_PACKING:
      return "packing";
    case v1::LoadProgress::PHASE_READY:
      return "ready";
    case v1::LoadProgress::PHASE_FAILED:
      return "failed";
    default:
      return "waiting";
  }
}

}  // namespace

std::vector<v1::LoadModelProgress::Worker> Deployment::Progress() const {
  std::vector<v1::LoadModelProgress::Worker> workers;
  for (const v1::PlanStage& stage : OnlyPipeline(plan_).stages()) {
    v1::LoadModelProgress::Worker& worker = workers.emplace_back();
    worker.set_node(OnlyRank(stage).node());
    const auto it = progress_.find(worker.node());
    const v1::LoadProgress progress =
        it == progress_.end() ? v1::LoadProgress() : it->second.progress;
    worker.set_phase(PhaseName(progress.phase()));
    worker.set_done_bytes(progress.done_bytes());
    worker.set_total_bytes(progress.total_bytes() != 0 ? progress.total_bytes()
                                                       : stage.weight_bytes());
    worker.set_fetched_bytes(progress.fetched_bytes());
    if (loads() && !(it != progress_.end() && it->second.ready)) {
      worker.set_silent_s(ToMs(host_->Now() - SilentSince(stage)) / 1e3);
      worker.set_limit_s(ToMs(options_.load_timeout) / 1e3);
    }
  }
  return workers;
}

TimePoint Deployment::SilentSince(const v1::PlanStage& stage) const {
  const auto it = progress_.find(OnlyRank(stage).node());
  return it == progress_.end() ? load_sent_ : it->second.advanced;
}

const v1::PlanStage* Deployment::SlowestToLoad() const {
  const v1::PlanStage* slowest = nullptr;
  for (const v1::PlanStage& stage : OnlyPipeline(plan_).stages()) {
    const auto it = progress_.find(OnlyRank(stage).node());
    const bool ready = it != progress_.end() && it->second.ready;
    if (!ready && (slowest == nullptr || SilentSince(stage) < SilentSince(*slowest))) {
      slowest = &stage;
    }
  }
  return slowest;
}

Waiting Deployment::LoadWait(const v1::PlanStage& stage) const {
  const std::string& node = OnlyRank(stage).node();
  const auto it = progress_.find(node);
  std::string how = "has said nothing yet";
  if (it != progress_.end()) {
    const v1::LoadProgress& progress = it->second.progress;
    how = PhaseName(progress.phase());
    if (progress.total_bytes() > 0) {
      const double share =
          static_cast<double>(progress.done_bytes()) / static_cast<double>(progress.total_bytes());
      how += ", " + std::to_string(static_cast<int>(100 * std::min(1.0, share))) + " %";
    }
  }
  Waiting wait;
  wait.what = "node " + node + " to load layers " + std::to_string(stage.first_layer()) + "-" +
              std::to_string(stage.last_layer()) + " of model " + model_->name + " (" + how + ")";
  wait.node = node;
  wait.model = model_->name;
  wait.since = SilentSince(stage);
  wait.limit = options_.load_timeout;
  wait.hint = "see the log of strata-worker on " + node +
              " and start it again; `strata node drain " + node + "` and `strata model load " +
              model_->name + "` place the model on others";
  return wait;
}

std::vector<Waiting> Deployment::Waits() const {
  std::vector<Waiting> waits;
  Waiting wait;
  wait.model = model_->name;
  wait.since = state_since_;
  if (loads()) {
    for (const v1::PlanStage& stage : OnlyPipeline(plan_).stages()) {
      const auto it = progress_.find(OnlyRank(stage).node());
      if (it == progress_.end() || !it->second.ready) {
        waits.push_back(LoadWait(stage));
      }
    }
  } else if (state_ == DeploymentState::kLoading && engine_ != nullptr) {
    for (const std::string& node : UnfencedNodes()) {
      wait.what = "node " + node + " to link its stage of model " + model_->name;
      wait.node = node;
      wait.limit = options_.step_timeout + options_.recovery_timeout;
      wait.hint = "see the log of strata-worker on " + node + ", and `strata node show " + node +
                  "` for its links";
      waits.push_back(wait);
    }
  } else if (state_ == DeploymentState::kWaiting && !problem_.ok()) {
    wait.node = DetailOf(problem_).node();
    wait.what = (wait.node.empty() ? "the nodes" : "node " + wait.node) + " of model " +
                model_->name + " to come back";
    waits.push_back(wait);
  }
  return waits;
}

void Deployment::ExcuseSilence() {
  load_sent_ = host_->Now();
  for (auto& [node, worker] : progress_) {
    worker.advanced = host_->Now();
  }
}

bool Deployment::BeginRetry(TimePoint now) {
  if (state_ != DeploymentState::kFailed || !retry_.due().has_value() || now < *retry_.due()) {
    return false;
  }
  LogInfo({{"model", model_->name}, {"deployment", id_}, {"failed", retry_.failed()}},
          "the model is loaded again: what made it fail may have gone");
  state_ = DeploymentState::kWaiting;
  state_since_ = now;
  retry_.Begin();
  return true;
}

std::optional<TimePoint> Deployment::NextWake() const {
  std::optional<TimePoint> wake = engine_ != nullptr ? engine_->NextWake() : std::nullopt;
  const auto at = [&wake](TimePoint time) { wake = std::min(wake.value_or(time), time); };
  if (loads() && options_.load_timeout > nanoseconds(0)) {
    at(SilentSince(*SlowestToLoad()) + options_.load_timeout);
  }
  if (state_ == DeploymentState::kFailed && retry_.due().has_value()) {
    at(*retry_.due());
  }
  return wake;
}

void Deployment::EndLateLoad(TimePoint now) {
  if (!loads() || options_.load_timeout <= nanoseconds(0)) {
    return;
  }
  const Waiting wait = LoadWait(*SlowestToLoad());
  if (now - wait.since >= wait.limit) {
    LoadFailed(Error(absl::StatusCode::kDeadlineExceeded, "LOAD_TIMEOUT",
                     "waited in vain for " + wait.what + ": no progress for " +
                         FormatDuration(now - wait.since))
                   .Node(wait.node)
                   .Limit("load_timeout=" + FormatDuration(options_.load_timeout))
                   .Hint(wait.hint));
  }
}

}  // namespace strata
