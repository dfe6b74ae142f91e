#include "coordinator/engine/engine.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/engine/engine_impl.h"
#include "coordinator/engine/step_pace.h"

namespace strata {
namespace {

const char* StateOf(const LiveSession& session, const SessionQueue& sessions) {
  return !session.started.has_value()                 ? "queued"
         : sessions.IsParked(session)                 ? "paused"
         : sessions.queued().contains(session.rank()) ? "preempted"
         : session.kv.replaying()                     ? "replaying"
         : session.waits_for_reader()                 ? "paused"
         : session.generated() > 0                    ? "decode"
                                                      : "prefill";
}

}  // namespace

std::string_view PipelineStateName(PipelineState state) {
  switch (state) {
    case PipelineState::kNew:
      return "new";
    case PipelineState::kFencing:
      return "fencing";
    case PipelineState::kResync:
      return "resync";
    case PipelineState::kRunning:
      return "running";
    case PipelineState::kBackoff:
      return "backoff";
    case PipelineState::kDown:
      return "down";
    case PipelineState::kSuspended:
      return "suspended";
    case PipelineState::kStopped:
      return "stopped";
  }
  return "";
}

Engine::Impl::Impl(EngineConfig config, SequenceNumbers* sequence_numbers, EngineHost* host)
    : host_(host),
      config_(std::move(config)),
      timing_(PredictedMsOf(config_.stages), config_.step_timeout, config_.max_batch_tokens),
      meter_(config_.stages.size()),
      fence_(config_.epoch, config_.step_timeout, config_.recovery_timeout),
      stalls_(config_.stall_timeout, config_.step_timeout),
      sender_(config_, fence_, &in_flight_, &meter_, host, &counters_),
      recent_(config_.speculate_memory),
      book_(config_, sequence_numbers, &counters_),
      ends_(fence_, &sessions_, &book_, &recent_, &suspects_, &counters_),
      limits_(config_, book_.ledger()),
      admission_(config_, fence_, &sessions_, &book_, &ends_, &counters_),
      masks_(config_.vocab),
      builder_(config_, timing_, &sessions_, &book_, &masks_, &counters_),
      results_(config_, &sessions_, &book_, &suspects_, &ends_, &masks_, &counters_),
      guesses_(&sessions_, host),
      fence_patience_(config_.step_timeout) {
  STRATA_CHECK(!config_.stages.empty() && config_.vocab > 0 && config_.context > 0);
  STRATA_CHECK(config_.max_batch_tokens > 0 && config_.max_batch_items > 0);
  STRATA_CHECK(config_.max_sessions > 0 && config_.step_timeout.count() > 0);
}

absl::Status Engine::Impl::Submit(SessionRequest request, std::shared_ptr<SessionSink> sink,
                                  TimePoint now) {
  auto refused = [this](const absl::Status& status) {
    ++counters_.refused;
    return status;
  };
  if (!not_admitting_.ok()) {
    return refused(not_admitting_);
  }
  if (fence_.down()) {
    return refused(DownStatus());
  }
  if (absl::Status status =
          limits_.Check(request, sessions_.HasKey(request.key), sessions_.embedding_bytes(), now);
      !status.ok()) {
    return refused(status);
  }
  const absl::StatusOr<uint32_t> max_tokens = limits_.MaxTokens(request);
  if (!max_tokens.ok()) {
    return refused(max_tokens.status());
  }
  const auto prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  const uint32_t first_claim = prompt_tokens + (request.guaranteed ? *max_tokens : 1);
  const size_t queued = sessions_.queued().size();
  if (!admission_.StartsAtOnce(first_claim) && queued >= config_.max_queued_requests) {
    return refused(limits_.QueueFull(request, queued));
  }
  // For as long as it lives, whatever its length is: what is cached of it was turned so.
  const bool is_long = limits_.IsLong(uint64_t{prompt_tokens} + *max_tokens);
  request.params.set_rotary_variant(is_long ? 1 : 0);
  LiveSession& session = sessions_.Add(std::move(request), std::move(sink), *max_tokens, now);
  session.mask_since = now;
  // What else travels back of rows would have to be taken back with drafts.
  if (!session.request.return_logits && !session.request.digest_layers &&
      results_.MayDraft(session.request)) {
    const Speculate speculate = session.request.speculate.value_or(config_.speculate);
    std::unique_ptr<Drafter> drafter = config_.make_drafter(speculate, session.most_tokens());
    if (drafter != nullptr && recent_.keeps()) {
      drafter =
          std::make_unique<RecentDrafter>(std::move(drafter), &recent_, session.request.cache_salt);
    }
    session.drafts = SessionDrafts(
        std::move(drafter), session.request.constraint != nullptr && speculate == Speculate::kAuto);
    session.guesses = SessionGuesses(config_.draft_model && speculate == Speculate::kAuto &&
                                     session.request.constraint == nullptr);
  }
  book_.Open(session);
  ++counters_.submitted;
  Pump(now);
  return absl::OkStatus();
}

void Engine::Impl::Pump(TimePoint now) {
  if (!fence_.running() || drains_) {
    return;
  }
  ends_.ExpireDeadlines(now);
  admission_.Run(now);
  if (config_.draft_model) {
    guesses_.Ask(builder_.View(in_flight_.size(), now), now);
  }
  while (in_flight_.size() <= config_.stages.size() && SendNextStep(now)) {
  }
}

bool Engine::Impl::Cancel(std::string_view key, const absl::Status& why, TimePoint now) {
  LiveSession* session = sessions_.FindKey(key);
  if (session == nullptr) {
    return false;
  }
  if (why.ok()) {
    ends_.Finish(*session, "cancelled", now);
  } else {
    ends_.Fail(*session, why);
  }
  Pump(now);
  return true;
}

bool Engine::Impl::SetPaused(std::string_view key, bool paused, TimePoint now) {
  LiveSession* session = sessions_.FindKey(key);
  if (session == nullptr) {
    return false;
  }
  if (paused && !session->paused) {
    session->paused_since = now;
  }
  session->paused = paused;
  if (!paused && sessions_.IsParked(*session)) {
    sessions_.Queue(*session);  // Before those that came later.
  }
  Pump(now);
  return true;
}

void Engine::Impl::OnConstraint(std::string_view key, TimePoint now) {
  LiveSession* session = sessions_.FindKey(key);
  if (session == nullptr || session->request.constraint == nullptr) {
    return;
  }
  results_.EndWhereItMust(*session, now);
  if (session = sessions_.FindKey(key); session != nullptr) {
    results_.TakeSets(*session);
  }
  Pump(now);
}

void Engine::Impl::OnGuesses(std::string_view key, uint32_t known, std::vector<uint32_t> guesses,
                             TimePoint now) {
  LiveSession* session = sessions_.FindKey(key);
  if (session == nullptr) {
    return;
  }
  const bool of_vocabulary = std::all_of(guesses.begin(), guesses.end(),
                                         [this](uint32_t id) { return id < config_.vocab; });
  guesses_.Take(*session, known, of_vocabulary ? std::move(guesses) : std::vector<uint32_t>(), now);
  Pump(now);
}

void Engine::Impl::Drain(bool drains, TimePoint now) {
  drains_ = drains;
  Pump(now);
}

void Engine::Impl::StopAdmitting(const absl::Status& why) {
  STRATA_CHECK(!why.ok());
  not_admitting_ = why;
}

void Engine::Impl::FailAll(const absl::Status& why, TimePoint now) {
  ends_.FailAll(why);
  Pump(now);
}

void Engine::Impl::Stop(const absl::Status& why, TimePoint now) {
  StopAdmitting(why);
  fence_.Stop();
  in_flight_.Clear();
  FailAll(why, now);
}

EngineSnapshot Engine::Impl::Snapshot(TimePoint now) const {
  EngineSnapshot snapshot;
  snapshot.state = fence_.state();
  snapshot.epoch = fence_.epoch();
  snapshot.steps_in_flight = static_cast<uint32_t>(in_flight_.size());
  snapshot.kv_tokens = book_.ledger().capacity_tokens();
  if (snapshot.kv_tokens == kMaxContextTokens) {
    snapshot.kv_tokens = config_.context;  // Windows bound none.
  }
  snapshot.limiting_node = config_.stages[book_.ledger().limiting_stage()].node;
  snapshot.cached_sequences = static_cast<uint32_t>(book_.prefixes().kept());
  const SchedulerSnapshot view = builder_.View(in_flight_.size(), now);
  const StepPace pace = PaceOf(view);
  snapshot.token_budget = view.token_budget;
  snapshot.max_batch_tokens = config_.max_batch_tokens;
  snapshot.max_sessions = config_.max_sessions;
  snapshot.micro_batches = pace.batches;
  snapshot.prefill_step_ms = pace.slices > 1 ? pace.slice_ms : pace.step_ms;
  snapshot.inter_token_target_ms = ToMs(config_.inter_token_target);
  snapshot.hop_ms = timing_.HopMs();
  for (const auto& [id, session] : sessions_.all()) {
    snapshot.sessions.push_back(
        {session.request.key, session.request.request_id, StateOf(session, sessions_),
         session.prompt_tokens, session.generated(), session.max_tokens, session.request.guaranteed,
         now - session.arrived, session.steps, session.times, session.drafts.drafted(),
         session.drafts.accepted(), session.kv.drafts()});
  }
  snapshot.kv = book_.ledger().Snapshot();
  if (!fence_.running() && !fence_.last_fault().ok()) {
    snapshot.problems.push_back({Describe(fence_.last_fault()), DetailOf(DownStatus()).hint()});
  }
  if (quarantine_.has_value()) {
    snapshot.problems.push_back(*quarantine_);
  }
  snapshot.counters = counters_;
  snapshot.nodes = NodesOf(config_.stages);
  snapshot.pipeline = meter_.counters();
  return snapshot;
}

Engine::Engine(EngineConfig config, SequenceNumbers* sequence_numbers, EngineHost* host)
    : impl_(std::make_unique<Impl>(std::move(config), sequence_numbers, host)) {}
Engine::~Engine() = default;

void Engine::Start(TimePoint now) { impl_->Start(now); }
absl::Status Engine::Submit(SessionRequest request, std::shared_ptr<SessionSink> sink,
                            TimePoint now) {
  return impl_->Submit(std::move(request), std::move(sink), now);
}
PromptLimit Engine::LongestPrompt() const { return impl_->limits().LongestPrompt(); }
bool Engine::Cancel(std::string_view key, const absl::Status& why, TimePoint now) {
  return impl_->Cancel(key, why, now);
}
bool Engine::SetPaused(std::string_view key, bool paused, TimePoint now) {
  return impl_->SetPaused(key, paused, now);
}
void Engine::OnConstraint(std::string_view key, TimePoint now) { impl_->OnConstraint(key, now); }
void Engine::OnGuesses(std::string_view key, uint32_t known, std::vector<uint32_t> guesses,
                       TimePoint now) {
  impl_->OnGuesses(key, known, std::move(guesses), now);
}
void Engine::OnResult(ResultMessage result, TimePoint now) {
  impl_->OnResult(std::move(result), now);
}
void Engine::OnLinkFault(uint64_t epoch, const absl::Status& status, TimePoint now) {
  impl_->OnLinkFault(epoch, status, now);
}
void Engine::OnFenced(uint64_t epoch, TimePoint now) { impl_->OnFenced(epoch, now); }
absl::Status Engine::CheckFits(const std::vector<EngineStage>& stages) const {
  return impl_->CheckFits(stages);
}
void Engine::Suspend(std::vector<EngineStage> stages, TimePoint now,
                     const std::string& numerics_class) {
  impl_->Suspend(std::move(stages), now, numerics_class);
}
void Engine::Drain(bool drains, TimePoint now) { impl_->Drain(drains, now); }
bool Engine::drained() const { return impl_->drained(); }
void Engine::Repoint(std::vector<EngineStage> stages, TimePoint now) {
  impl_->Repoint(std::move(stages), now);
}
void Engine::LoseStages(const absl::Status& why, nanoseconds patience, TimePoint now) {
  impl_->LoseStages(why, patience, now);
}
void Engine::Resume(uint64_t epoch, TimePoint now) { impl_->Resume(epoch, now); }
void Engine::StopAdmitting(const absl::Status& why) { impl_->StopAdmitting(why); }
void Engine::FailAll(const absl::Status& why, TimePoint now) { impl_->FailAll(why, now); }
void Engine::Stop(const absl::Status& why, TimePoint now) { impl_->Stop(why, now); }
size_t Engine::live_sessions() const { return impl_->sessions().all().size(); }
bool Engine::IsLive(std::string_view key) const { return impl_->sessions().HasKey(key); }
bool Engine::down() const { return impl_->fence().down(); }
uint64_t Engine::epoch() const { return impl_->fence().epoch(); }
std::optional<TimePoint> Engine::NextWake() const { return impl_->NextWake(); }
void Engine::ExcusePause(TimePoint now) { impl_->ExcusePause(now); }
void Engine::Tick(TimePoint now) { impl_->Tick(now); }
EngineSnapshot Engine::Snapshot(TimePoint now) const { return impl_->Snapshot(now); }

}  // namespace strata
