// Faults, fences, resynchronisation, and everything that time brings.
#include <algorithm>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/engine/engine_impl.h"

namespace strata {
namespace {

constexpr nanoseconds kFirstBackoff = milliseconds(50);
constexpr nanoseconds kMostBackoff = std::chrono::seconds(5);

// Before the fence that answers the n-th fault in a row.
nanoseconds Backoff(int faults_in_a_row) {
  if (faults_in_a_row <= 1) {
    return nanoseconds(0);
  }
  return std::min(kMostBackoff, kFirstBackoff * (1 << std::min(faults_in_a_row - 2, 10)));
}

}  // namespace

void Engine::Impl::Start(TimePoint now) {
  STRATA_CHECK(phase_ == Phase::kNew);
  BeginOutage(now, now);
  phase_ = Phase::kFencing;
  fence_sent_ = now;
  host_->SendFence(epoch_);
}

void Engine::Impl::OnLinkFault(uint64_t epoch, const absl::Status& status, TimePoint now) {
  if (epoch != epoch_ || phase_ == Phase::kNew || phase_ == Phase::kBackoff ||
      phase_ == Phase::kSuspended || phase_ == Phase::kStopped) {
    return;
  }
  // Even a link that was closed in good order is one that frames can no longer travel on.
  const absl::Status cause =
      status.ok() ? Error(absl::StatusCode::kUnavailable, "LINK_CLOSED", "closed by the other end")
                  : status;
  Fault(Annotate(cause, "a link of epoch " + std::to_string(epoch) + " broke"), now);
}

void Engine::Impl::Fault(const absl::Status& status, TimePoint now) {
  ++counters_.faults;
  ++faults_in_a_row_;
  last_fault_ = status;
  BeginOutage(in_flight_.empty() ? now : last_activity_, now);
  AbandonStepsInFlight();
  if (faults_in_a_row_ > kMaxFaultsWithoutProgress && !down_) {
    GoDown(DownStatus());
  }
  const nanoseconds wait = Backoff(faults_in_a_row_);
  if (wait.count() > 0) {
    phase_ = Phase::kBackoff;
    backoff_until_ = now + wait;
  } else {
    BeginFence(now);
  }
}

// Faults that follow before a step is committed belong to the same outage.
void Engine::Impl::BeginOutage(TimePoint since, TimePoint now) {
  if (!gives_up_at_.has_value()) {
    gives_up_at_ = std::max(now, since + config_.step_timeout) + config_.recovery_timeout;
  }
}

// Sessions go back to what was committed. Those that have nothing committed begin anew.
void Engine::Impl::AbandonStepsInFlight() {
  NoteSuspects();
  in_flight_.clear();
  waves_.Clear();
  for (auto& [id, session] : sessions_) {
    if (session.generation == 0) {
      Unbegin(session);
      session.ForgetSequence(RootOf(session.request));
      continue;
    }
    session.sent = session.committed;
    session.sent_fingerprint = session.committed_fingerprint;
    if (session.committed == 0) {
      const bool replaying = session.replaying;
      Replay(session);
      session.replaying = replaying;
    }
  }
}

void Engine::Impl::BeginFence(TimePoint now) {
  ++epoch_;
  next_step_ = 1;
  committed_step_ = 0;
  phase_ = Phase::kFencing;
  fence_sent_ = now;
  host_->SendFence(epoch_);
}

std::string Engine::Impl::NodeList(const std::vector<std::string>& nodes) const {
  std::string list;
  for (const std::string& node : nodes) {
    list += (list.empty() ? "\"" : ", \"") + node + "\"";
  }
  return list;
}

absl::Status Engine::Impl::DownStatus() const {
  std::vector<std::string> missing;
  if (phase_ == Phase::kFencing) {
    missing = host_->UnfencedNodes();
  }
  const v1::ErrorDetail cause = DetailOf(last_fault_);
  std::string message = "the pipeline is down";
  if (!missing.empty()) {
    message += (missing.size() == 1 ? ": node " : ": nodes ") + NodeList(missing) +
               (missing.size() == 1 ? " does" : " do") + " not answer";
  }
  if (!last_fault_.ok()) {
    message += (missing.empty() ? ": " : "; ") + cause.message();
  }
  return Error(absl::StatusCode::kUnavailable, "PIPELINE_DOWN", message)
      .Node(!missing.empty() ? missing.front() : cause.node())
      .Hint(
          (missing.empty() ? std::string("`strata node list` says which nodes cannot be reached")
                           : "see the log of strata-worker on " + missing.front()) +
          "; the pipeline recovers by itself when its nodes are back: then send the request again");
}

void Engine::Impl::GoDown(const absl::Status& why) {
  down_ = true;
  while (!sessions_.empty()) {
    FailSession(sessions_.begin()->second, why);
  }
}

void Engine::Impl::FenceTimedOut(TimePoint now) {
  ++counters_.fences_failed;
  const std::vector<std::string> missing = host_->UnfencedNodes();
  last_fault_ =
      Error(absl::StatusCode::kUnavailable, "FENCE_TIMEOUT",
            "the fence of epoch " + std::to_string(epoch_) + " was not acknowledged in time by " +
                (missing.empty() ? "every node" : NodeList(missing)))
          .Node(missing.empty() ? "" : missing.front());
  // Again, more and more rarely: the worker may only have been away.
  ++faults_in_a_row_;
  phase_ = Phase::kBackoff;
  backoff_until_ = now + std::max(kFirstBackoff, Backoff(faults_in_a_row_));
}

void Engine::Impl::OnFenced(uint64_t epoch, TimePoint now) {
  if (phase_ != Phase::kFencing || epoch != epoch_) {
    return;  // Of a fence that was given up.
  }
  SendResync(now);
}

// The epoch's first frame: cuts every live sequence to what was committed, and every kept one to
// what is cached of it; what it does not name
// is released. Nothing else goes before its result says what the stages really had.
void Engine::Impl::SendResync(TimePoint now) {
  phase_ = Phase::kResync;
  lengths_.clear();
  FailOffender(last_fault_);
  StepMessage message;
  SentStep sent;
  v1::StepFrame* frame = BeginFrame(&message, &sent);
  frame->set_resync(true);
  sent.resync = true;
  for (auto& [generation, sequence] : sequences_) {
    if (sequence.kept) {
      sequence.cut_wanted = false;
      AddTruncate(generation, sequence, sequence.keep,
                  sequence.chain->FingerprintAt(sequence.keep / kPageTokens), frame, &sent);
    } else if (sequence.session == 0) {
      sequence.release_wanted = false;
    } else {
      const Session& session = sessions_.at(sequence.session);
      AddTruncate(generation, sequence, session.committed, session.committed_fingerprint, frame,
                  &sent);
    }
  }
  Dispatch(std::move(message), std::move(sent), now);
}

void Engine::Impl::CommitResync(const SentStep& sent, const v1::StepResult& header) {
  std::set<uint64_t> named;
  for (const SentCommand& command : sent.commands) {
    named.insert(command.generation);
  }
  std::vector<uint64_t> released;
  for (const auto& [generation, sequence] : sequences_) {
    if (!named.contains(generation)) {
      released.push_back(generation);
    }
  }
  for (uint64_t generation : released) {
    Released(generation);
  }
  for (size_t i = 0; i < sent.commands.size(); ++i) {
    const uint64_t generation = sent.commands[i].generation;
    Sequence& sequence = sequences_.at(generation);
    const v1::CommandResult& result = header.commands(static_cast<int>(i));
    if (!result.has_error()) {
      sequence.sent = sequence.committed = sent.commands[i].length;
      ledger_.SetHeld(generation, sequence.committed, sequence.committed);
      ledger_.SetRetained(generation, sequence.committed);
      FreeTails(&sequence, 0);
      continue;
    }
    // A stage that started anew, say. What the others still have of it goes with its Release.
    sequence.poisoned = true;
    ledger_.SetHeld(generation, 0, sequence.sent);
    DropFromCache(generation, &sequence);
    if (Session* session = Find(sequence.session); session != nullptr) {
      ++counters_.rebuilds;
      Replay(*session);
    }
  }
}

void Engine::Impl::ExpireDeadlines(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Session& session = sessions_.at(deadlines_.begin()->second);
    const std::string where =
        session.started.has_value()
            ? "after " + std::to_string(session.generated()) + " generated tokens"
            : "while the request was queued";
    FailSession(session, Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                               "the deadline passed " + where)
                             .Hint("allow more time, or ask for fewer tokens"));
  }
}

std::optional<TimePoint> Engine::Impl::NextWake() const {
  std::optional<TimePoint> wake;
  auto at = [&wake](TimePoint time) { wake = std::min(wake.value_or(time), time); };
  if (!deadlines_.empty()) {
    at(deadlines_.begin()->first);
  }
  if (!in_flight_.empty()) {
    at(last_activity_ + config_.step_timeout);
  }
  if (phase_ == Phase::kFencing) {
    at(fence_sent_ + config_.step_timeout);
  }
  if (phase_ == Phase::kBackoff) {
    at(backoff_until_);
  }
  if (!down_ && gives_up_at_.has_value()) {
    at(*gives_up_at_);
  }
  if (phase_ == Phase::kRunning && (!queue_.empty() || !has_room_)) {
    for (const auto& [rank, session] : running_) {
      const TimePoint gives_way = session->paused_since + kReaderPatience;
      if (session->waits_for_reader() && gives_way > now_) at(gives_way);
    }
  }
  return wake;
}

void Engine::Impl::Tick(TimePoint now) {
  ExpireDeadlines(now);
  if (!in_flight_.empty() && now >= last_activity_ + config_.step_timeout) {
    std::vector<std::string> nodes;
    for (const EngineStage& stage : config_.stages) {
      nodes.push_back(stage.node);
    }
    Fault(Error(absl::StatusCode::kUnavailable, "STEP_TIMEOUT",
                "step " + std::to_string(in_flight_.front().step) +
                    " gave no result within the step timeout (nodes " + NodeList(nodes) + ")")
              .Limit("step_timeout_ms=" +
                     std::to_string(static_cast<uint64_t>(ToMs(config_.step_timeout)))),
          now);
  }
  if (phase_ == Phase::kFencing && now >= fence_sent_ + config_.step_timeout) {
    FenceTimedOut(now);
  }
  if (!down_ && gives_up_at_.has_value() && now >= *gives_up_at_) {
    GoDown(stages_lost_.ok() ? DownStatus() : stages_lost_);
  }
  if (phase_ == Phase::kBackoff && now >= backoff_until_) {
    BeginFence(now);
  }
  Pump(now);
}

}  // namespace strata
