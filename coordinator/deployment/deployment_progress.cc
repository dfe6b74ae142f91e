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
#include "coordinator/deployment/deployment.h"

namespace strata {
std::vector<v1::LoadModelProgress::Worker> Deployment::Progress() const {
  return loading_.Describe(plan_, Loads(phase_), host_->Now());
}

std::vector<Waiting> Deployment::Waits() const {
  std::vector<Waiting> waits;
  Waiting wait;
  wait.model = model_->name;
  wait.since = state_since_;
  if (Loads(phase_)) {
    for (const v1::PlanStage& stage : OnlyPipeline(plan_).stages()) {
      if (!loading_.Ready(stage)) {
        waits.push_back(loading_.WaitFor(stage, model_->name));
      }
    }
  } else if (phase_ == DeploymentPhase::kLinking) {
    for (const std::string& node : UnfencedNodes()) {
      wait.what = "node " + node + " to link its stage of model " + model_->name;
      wait.node = node;
      wait.limit = options_.step_timeout + options_.recovery_timeout;
      wait.hint = "see the log of strata-worker on " + node + ", and `strata node show " + node +
                  "` for its links";
      waits.push_back(wait);
    }
  } else if (state() == DeploymentState::kWaiting && !problem_.ok()) {
    wait.node = DetailOf(problem_).node();
    wait.what = (wait.node.empty() ? "the nodes" : "node " + wait.node) + " of model " +
                model_->name + " to come back";
    waits.push_back(wait);
  }
  return waits;
}

bool Deployment::BeginRetry(TimePoint now) {
  if (phase_ != DeploymentPhase::kFailed || !retry_.due().has_value() || now < *retry_.due()) {
    return false;
  }
  LogInfo({{"model", model_->name}, {"deployment", id_}, {"failed", retry_.failed()}},
          "the model is loaded again: what made it fail may have gone");
  Move(DeploymentEvent::kWait);
  state_since_ = now;
  retry_.Begin();
  return true;
}

std::optional<TimePoint> Deployment::NextWake() const {
  std::optional<TimePoint> wake = engine_ != nullptr ? engine_->NextWake() : std::nullopt;
  const auto at = [&wake](TimePoint time) { wake = std::min(wake.value_or(time), time); };
  if (Loads(phase_) && options_.load_timeout > nanoseconds(0)) {
    at(loading_.SilentSince(*loading_.Slowest(plan_)) + options_.load_timeout);
  }
  if (phase_ == DeploymentPhase::kFailed && retry_.due().has_value()) {
    at(*retry_.due());
  }
  return wake;
}

void Deployment::EndLateLoad(TimePoint now) {
  if (!Loads(phase_) || options_.load_timeout <= nanoseconds(0)) {
    return;
  }
  const Waiting wait = loading_.WaitFor(*loading_.Slowest(plan_), model_->name);
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
