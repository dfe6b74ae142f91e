#include "coordinator/engine/fence.h"

#include <algorithm>

#include "common/check.h"
#include "common/status.h"
#include "coordinator/engine/fault_policy.h"

namespace strata {
namespace {

// Of a stage's worker to which another one is lost: docs/internals/ranks.md.
constexpr char kRanksBroken[] = "RANKS_BROKEN";
constexpr nanoseconds kFirstBackoff = milliseconds(50);
constexpr nanoseconds kMostBackoff = std::chrono::seconds(5);

// Before the fence that answers the n-th fault in a row.
nanoseconds BackoffAfter(int faults_in_a_row) {
  if (faults_in_a_row <= 1) {
    return nanoseconds(0);
  }
  return std::min(kMostBackoff, kFirstBackoff * (1 << std::min(faults_in_a_row - 2, 10)));
}

}  // namespace

std::string QuotedNames(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    list += (list.empty() ? "\"" : ", \"") + name + "\"";
  }
  return list;
}

Fence::Fence(uint64_t epoch, nanoseconds step_timeout, nanoseconds recovery_timeout)
    : step_timeout_(step_timeout), recovery_timeout_(recovery_timeout), epoch_(epoch) {}

PipelineState Fence::state() const {
  static constexpr PipelineState kStates[] = {PipelineState::kNew,     PipelineState::kFencing,
                                              PipelineState::kResync,  PipelineState::kRunning,
                                              PipelineState::kBackoff, PipelineState::kSuspended,
                                              PipelineState::kStopped};
  return down() && !Is<Stopped>() ? PipelineState::kDown : kStates[state_.index()];
}

bool Fence::HeedsLinkFault(uint64_t epoch) const {
  return epoch == epoch_ && (Is<Fencing>() || Is<Resync>() || Is<Running>());
}

void Fence::BeginOutage(TimePoint since, nanoseconds patience, TimePoint now) {
  if (std::holds_alternative<NoOutage>(outage_)) {
    outage_ = Waiting{std::max(now, since + step_timeout_) + patience};
  }
}

void Fence::Start(TimePoint now) {
  STRATA_CHECK(Is<New>());
  BeginOutage(now, recovery_timeout_, now);
  state_ = Fencing{now + step_timeout_};
}

bool Fence::OnFenced(uint64_t epoch) {
  if (!Is<Fencing>() || epoch != epoch_) {
    return false;
  }
  state_ = Resync{};
  return true;
}

void Fence::OnCommitted() {
  faults_in_a_row_ = 0;
  outage_ = NoOutage{};
  state_ = Running{};
}

void Fence::NoteFault(const absl::Status& status, TimePoint since, TimePoint now) {
  ++faults_in_a_row_;
  last_fault_ = status;
  BeginOutage(since, recovery_timeout_, now);
}

bool Fence::FaultsGoOn() const { return faults_in_a_row_ > kMaxFaultsWithoutProgress && !down(); }

bool Fence::Recover(TimePoint now, nanoseconds patience) {
  const nanoseconds wait = BackoffAfter(faults_in_a_row_);
  if (wait.count() > 0) {
    state_ = Backoff{now + wait};
    return false;
  }
  BeginFence(now, patience);
  return true;
}

bool Fence::FenceTimedOut(TimePoint now) const {
  const auto* fencing = std::get_if<Fencing>(&state_);
  return fencing != nullptr && now >= fencing->gives_up_at;
}

void Fence::GiveUpFence(const std::vector<std::string>& missing, TimePoint now) {
  last_fault_ =
      Error(absl::StatusCode::kUnavailable, "FENCE_TIMEOUT",
            "the fence of epoch " + std::to_string(epoch_) + " was not acknowledged in time by " +
                (missing.empty() ? "every node" : QuotedNames(missing)))
          .Node(missing.empty() ? "" : missing.back());
  ++faults_in_a_row_;
  state_ = Backoff{now + std::max(kFirstBackoff, BackoffAfter(faults_in_a_row_))};
}

bool Fence::OutageTooLong(TimePoint now) const {
  const auto* waiting = std::get_if<Waiting>(&outage_);
  return waiting != nullptr && now >= waiting->gives_up_at;
}

bool Fence::BackoffOver(TimePoint now) const {
  const auto* backoff = std::get_if<Backoff>(&state_);
  return backoff != nullptr && now >= backoff->until;
}

void Fence::BeginFence(TimePoint now, nanoseconds patience) {
  ++epoch_;
  state_ = Fencing{now + patience};
}

std::optional<TimePoint> Fence::NextWake() const {
  std::optional<TimePoint> wake;
  if (const auto* fencing = std::get_if<Fencing>(&state_)) {
    wake = fencing->gives_up_at;
  }
  if (const auto* backoff = std::get_if<Backoff>(&state_)) {
    wake = backoff->until;
  }
  if (const auto* waiting = std::get_if<Waiting>(&outage_)) {
    wake = std::min(wake.value_or(waiting->gives_up_at), waiting->gives_up_at);
  }
  return wake;
}

void Fence::Suspend() {
  STRATA_CHECK(!Is<Stopped>());
  state_ = Suspended{};
  if (!down()) {
    outage_ = NoOutage{};
  }
  stages_lost_ = absl::OkStatus();
}

void Fence::LoseStages(const absl::Status& why, TimePoint since, nanoseconds patience,
                       TimePoint now) {
  STRATA_CHECK(Is<Suspended>());
  last_fault_ = stages_lost_ = why;
  BeginOutage(since, patience, now);
}

void Fence::Resume(uint64_t epoch, TimePoint now) {
  STRATA_CHECK(Is<Suspended>() && epoch > epoch_);
  epoch_ = epoch;
  faults_in_a_row_ = 0;
  last_fault_ = stages_lost_ = absl::OkStatus();
  outage_ = NoOutage{};
  BeginOutage(now, recovery_timeout_, now);
  state_ = Fencing{now + step_timeout_};
}

absl::Status Fence::DownStatus(const std::vector<std::string>& unfenced) const {
  const v1::ErrorDetail cause = DetailOf(last_fault_);
  // Who cannot join the ranks of its stage answers, and says which node is the cause.
  const bool says = cause.reason() == kRanksBroken && !cause.node().empty();
  const std::vector<std::string> missing = says ? std::vector<std::string>() : unfenced;
  std::string message = "the pipeline is down";
  if (!missing.empty()) {
    message += (missing.size() == 1 ? ": node " : ": nodes ") + QuotedNames(missing) +
               (missing.size() == 1 ? " does" : " do") + " not answer";
  }
  if (!last_fault_.ok()) {
    message += (missing.empty() ? ": " : "; ") + cause.message();
  }
  return Error(absl::StatusCode::kUnavailable, "PIPELINE_DOWN", message)
      .Node(!missing.empty() ? missing.back() : cause.node())
      .Hint(
          (missing.empty() ? std::string("`strata node list` says which nodes cannot be reached")
                           : "see the log of strata-worker on " + missing.back()) +
          "; the pipeline recovers by itself when its nodes are back: then send the request again");
}

}  // namespace strata
