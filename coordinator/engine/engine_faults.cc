// Faults, resynchronisation, everything that time brings, and what becomes of sessions when the
// stages are loaded anew.
#include <algorithm>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "coordinator/engine/engine_impl.h"
#include "coordinator/engine/fault_policy.h"

namespace strata {

std::vector<std::string> NodesOf(const std::vector<EngineStage>& stages) {
  std::vector<std::string> nodes;
  nodes.reserve(stages.size());
  for (const EngineStage& stage : stages) {
    nodes.push_back(stage.node);
  }
  return nodes;
}

std::vector<double> PredictedMsOf(const std::vector<EngineStage>& stages) {
  std::vector<double> ms;
  ms.reserve(stages.size());
  for (const EngineStage& stage : stages) {
    ms.push_back(stage.predicted_ms);
  }
  return ms;
}

namespace {

// Whether each stage computes what it did before, where it did: what is known of its speed holds.
bool SamePlaces(const std::vector<EngineStage>& a, const std::vector<EngineStage>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const EngineStage& x, const EngineStage& y) {
                      return x.node == y.node && x.layers == y.layers;
                    });
}

}  // namespace

void Engine::Impl::Start(TimePoint now) {
  fence_.Start(now);
  sender_.SendFence();
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
  fence_.NoteFault(status, in_flight_.LastSign(now), now);
  fence_patience_ = std::max(fence_patience_, BehindStepsInFlight());
  NoteSuspects();
  in_flight_.Clear();
  builder_.DropWaves();
  for (auto& [id, session] : sessions_.all()) {
    book_.Rewind(session);
  }
  if (fence_.FaultsGoOn() && !PlacesElsewhere()) {
    GoDown(DownStatus());
  }
  if (fence_.Recover(now, FencePatience())) {
    sender_.SendFence();
  }
}

void Engine::Impl::Stall(nanoseconds patience, TimePoint now) {
  const bool sooner = patience < config_.step_timeout;
  const absl::Status stalled =
      Error(absl::StatusCode::kUnavailable, "STEP_TIMEOUT",
            "step " + std::to_string(in_flight_.oldest().step) + " gave no result within " +
                (sooner ? "several times what it was expected to take" : "the step timeout") +
                " (nodes " + QuotedNames(NodesOf(config_.stages)) + ")")
          .Limit((sooner ? "stall_timeout_ms=" : "step_timeout_ms=") +
                 std::to_string(static_cast<uint64_t>(
                     ToMs(sooner ? config_.stall_timeout : config_.step_timeout))));
  Fault(stalled, now);
  stalls_.NoteStall();
}

void Engine::Impl::StallOfFence(TimePoint now) {
  const std::vector<std::string> missing = sender_.UnfencedNodes();
  ++counters_.fences_failed;
  fence_.GiveUpFence(missing, now);
  stalls_.NoteStall();
  if (stalls_.GoesOn() && !fence_.down() && fence_.stages_lost().ok()) {
    host_->PlacesElsewhere(fence_.DownStatus(missing));
  }
}

nanoseconds Engine::Impl::StepPatience() const {
  if (in_flight_.empty()) {
    return config_.step_timeout;
  }
  const SentStep& step = in_flight_.oldest();
  return stalls_.Patience(timing_.ExpectedMs(step.work, step.slices));
}

nanoseconds Engine::Impl::FencePatience() const {
  return stalls_.GoesOn() ? config_.step_timeout : fence_patience_;
}

nanoseconds Engine::Impl::BehindStepsInFlight() const {
  double expected_ms = 0;  // A stage heeds a fence when it has computed what it is at.
  for (const SentStep& step : in_flight_.steps()) {
    expected_ms += timing_.ExpectedMs(step.work, step.slices);
  }
  return stalls_.Patience(expected_ms);
}

void Engine::Impl::NoteSuspects() {
  std::map<uint64_t, uint32_t> lost = in_flight_.Reach();
  std::erase_if(lost, [this](const auto& entry) { return !sessions_.Find(entry.first); });
  suspects_.NoteLost(lost);
}

absl::Status Engine::Impl::DownStatus() const { return fence_.DownStatus(sender_.UnfencedNodes()); }

bool Engine::Impl::PlacesElsewhere() const {
  return fence_.stages_lost().ok() && host_->PlacesElsewhere(DownStatus());
}

void Engine::Impl::GoDown(const absl::Status& why) {
  fence_.GoDown();
  ends_.FailAll(why);
}

void Engine::Impl::OnFenced(uint64_t epoch, TimePoint now) {
  if (fence_.OnFenced(epoch)) {
    SendResync(now);
  }
}

void Engine::Impl::SendResync(TimePoint now) {
  ends_.FailOffenders(NodesOf(config_.stages), fence_.last_fault());
  if (!fault_policy::MasksOutliveFence()) masks_.Clear();
  OutgoingStep step = sender_.Begin();
  step.message.header.set_resync(true);
  step.sent.resync = true;
  book_.AddResync(&step.message.header, &step.sent);
  sender_.Send(std::move(step), now);
}

std::optional<TimePoint> Engine::Impl::NextWake() const {
  std::optional<TimePoint> wake = fence_.NextWake();
  auto at = [&wake](const std::optional<TimePoint>& time) {
    if (time.has_value()) {
      wake = std::min(wake.value_or(*time), *time);
    }
  };
  at(sessions_.NextDeadline());
  at(in_flight_.GivenUpAt(StepPatience()));
  at(admission_.NextWake());
  at(masks_awaited_until_);
  return wake;
}

void Engine::Impl::Tick(TimePoint now) {
  ends_.ExpireDeadlines(now);
  if (!in_flight_.empty()) {
    if (const nanoseconds patience = StepPatience(); now >= *in_flight_.GivenUpAt(patience)) {
      Stall(patience, now);
    }
  }
  if (masks_awaited_until_.has_value() && now >= *masks_awaited_until_) {
    masks_awaited_until_.reset();
  }
  if (fence_.FenceTimedOut(now)) {
    StallOfFence(now);
  }
  if (fence_.OutageTooLong(now) && !PlacesElsewhere()) {
    GoDown(fence_.stages_lost().ok() ? DownStatus() : fence_.stages_lost());
  }
  if (fence_.BackoffOver(now)) {
    fence_.BeginFence(now, FencePatience());
    sender_.SendFence();
  }
  Pump(now);
}

absl::Status Engine::Impl::CheckFits(const std::vector<EngineStage>& stages) const {
  KvLedger ledger = NewLedger(config_, stages);
  for (const auto& [id, session] : sessions_.all()) {
    const bool fits = session.request.guaranteed && sessions_.running().contains(session.rank())
                          ? ledger.Reserve(session.most_tokens()).has_value()
                          : session.most_tokens() <= ledger.capacity_tokens();
    if (!fits) {
      return limits_.KvInUse(session, ledger, stages);
    }
  }
  return absl::OkStatus();
}

void Engine::Impl::BeginSuspension(std::vector<EngineStage> stages) {
  STRATA_CHECK(!stages.empty());
  fence_.Suspend();
  if (!SamePlaces(config_.stages, stages)) {
    timing_ = StepTiming(PredictedMsOf(stages), config_.step_timeout, config_.max_batch_tokens);
    meter_ = StepMeter(stages.size());
  }
  config_.stages = std::move(stages);
  drains_ = false;
  in_flight_.Clear();
  stalls_.Begin();
  fence_patience_ = config_.step_timeout;
  builder_.RenewWaves();
  results_.ForgetRefusals();
}

void Engine::Impl::Suspend(std::vector<EngineStage> stages, TimePoint now,
                           const std::string& numerics_class) {
  BeginSuspension(std::move(stages));
  if (!numerics_class.empty() && numerics_class != config_.numerics_class) {
    config_.numerics_class = numerics_class;
    for (auto& [id, session] : sessions_.all()) {
      session.sink->OnNumericsClass(numerics_class);
    }
  }
  // No stage has anything any more, so there is nothing to release either.
  book_.ForgetAll(&sessions_.all());
  admission_.ReserveAnew();
  std::vector<uint64_t> never_fit;
  for (const auto& [id, session] : sessions_.all()) {
    if (session.most_tokens() > book_.ledger().capacity_tokens()) {
      never_fit.push_back(id);
    }
  }
  for (const uint64_t id : never_fit) {
    LiveSession& session = sessions_.At(id);
    ends_.Fail(session, limits_.NeverFits(session));
  }
  ends_.ExpireDeadlines(now);
}

void Engine::Impl::Repoint(std::vector<EngineStage> stages, TimePoint now) {
  BeginSuspension(std::move(stages));
  for (auto& [id, session] : sessions_.all()) {
    book_.Rewind(session);
  }
  book_.Regrant();
  ends_.ExpireDeadlines(now);
}

void Engine::Impl::LoseStages(const absl::Status& why, nanoseconds patience, TimePoint now) {
  const TimePoint since = in_flight_.LastSign(now);
  NoteSuspects();
  Suspend(config_.stages, now, config_.numerics_class);
  ends_.FailOffenders(NodesOf(config_.stages), why);
  fence_.LoseStages(why, since, patience, now);
}

void Engine::Impl::Resume(uint64_t epoch, TimePoint now) {
  fence_.Resume(epoch, now);
  quarantine_.reset();
  sender_.SendFence();
}

}  // namespace strata
