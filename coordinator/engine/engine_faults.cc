// Faults, resynchronisation, and everything that time brings.
#include <algorithm>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/engine/engine_impl.h"

namespace strata {
void Engine::Impl::Start(TimePoint now) {
  fence_.Start(now);
  SendFence();
}

void Engine::Impl::SendFence() {
  next_step_ = 1;
  committed_step_ = 0;
  host_->SendFence(fence_.epoch());
}

void Engine::Impl::OnLinkFault(uint64_t epoch, const absl::Status& status, TimePoint now) {
  if (!fence_.HeedsLinkFault(epoch)) {
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
  fence_.NoteFault(status, LastSign(now), now);
  AbandonStepsInFlight();
  if (fence_.FaultsGoOn()) {
    GoDown(DownStatus());
  }
  if (fence_.Recover(now)) {
    SendFence();
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

void Engine::Impl::NoteSuspects() {
  std::map<uint64_t, uint32_t> lost;  // Sessions, and how far their steps went.
  for (const SentStep& step : in_flight_) {
    for (const SentItem& item : step.items) {
      if (Find(item.session) != nullptr) {
        uint32_t& end = lost[item.session];
        end = std::max(end, item.position + item.rows);
      }
    }
  }
  suspects_.NoteLost(lost);
}

void Engine::Impl::FailOffenders(const absl::Status& cause) {
  for (const uint64_t id : suspects_.Offenders()) {
    ++counters_.offenders;
    Session& session = sessions_.at(id);
    FailSession(session,
                BreaksStage(session.request.request_id, suspects_.Faults(id), Nodes(), cause));
  }
}

std::vector<std::string> Engine::Impl::Nodes() const {
  std::vector<std::string> nodes;
  for (const EngineStage& stage : config_.stages) {
    nodes.push_back(stage.node);
  }
  return nodes;
}

absl::Status Engine::Impl::DownStatus() const {
  return fence_.DownStatus(fence_.fencing() ? host_->UnfencedNodes() : std::vector<std::string>());
}

void Engine::Impl::GoDown(const absl::Status& why) {
  fence_.GoDown();
  while (!sessions_.empty()) {
    FailSession(sessions_.begin()->second, why);
  }
}

void Engine::Impl::OnFenced(uint64_t epoch, TimePoint now) {
  if (fence_.OnFenced(epoch)) {
    SendResync(now);
  }
}

// The epoch's first frame: cuts every live sequence to what was committed, and every kept one to
// what is cached of it; what it does not name is released. Nothing else goes before its result says
// what the stages really had.
void Engine::Impl::SendResync(TimePoint now) {
  lengths_.clear();
  FailOffenders(fence_.last_fault());
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
  std::optional<TimePoint> wake = fence_.NextWake();
  auto at = [&wake](TimePoint time) { wake = std::min(wake.value_or(time), time); };
  if (!deadlines_.empty()) {
    at(deadlines_.begin()->first);
  }
  if (!in_flight_.empty()) {
    at(last_activity_ + config_.step_timeout);
  }
  if (fence_.running() && (!queue_.empty() || !has_room_)) {
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
    Fault(Error(absl::StatusCode::kUnavailable, "STEP_TIMEOUT",
                "step " + std::to_string(in_flight_.front().step) +
                    " gave no result within the step timeout (nodes " + QuotedNames(Nodes()) + ")")
              .Limit("step_timeout_ms=" +
                     std::to_string(static_cast<uint64_t>(ToMs(config_.step_timeout)))),
          now);
  }
  if (fence_.FenceTimedOut(now)) {
    ++counters_.fences_failed;
    fence_.GiveUpFence(host_->UnfencedNodes(), now);
  }
  if (fence_.OutageTooLong(now)) {
    GoDown(fence_.stages_lost().ok() ? DownStatus() : fence_.stages_lost());
  }
  if (fence_.BackoffOver(now)) {
    fence_.BeginFence(now);
    SendFence();
  }
  Pump(now);
}

}  // namespace strata
