#include "coordinator/engine/engine.h"

#include <algorithm>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/engine/engine_impl.h"
#include "coordinator/engine/step_pace.h"

namespace strata {
namespace {

std::vector<double> PredictedMs(const EngineConfig& config) {
  std::vector<double> ms;
  for (const EngineStage& stage : config.stages) {
    ms.push_back(stage.predicted_ms);
  }
  return ms;
}

bool IsRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

absl::Status Refuse(const SessionRequest& request, absl::StatusCode code, std::string_view reason,
                    std::string_view message) {
  return Error(code, reason, message).RequestId(request.request_id);
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
    : config_(std::move(config)),
      sequence_numbers_(sequence_numbers),
      host_(host),
      roots_({FingerprintRoot(config_.deployment, config_.weights_digest, config_.numerics_class,
                              /*adapter_digest=*/"", /*rotary_variant=*/0),
              FingerprintRoot(config_.deployment, config_.weights_digest, config_.numerics_class,
                              /*adapter_digest=*/"", /*rotary_variant=*/1)}),
      caches_prefixes_(CachesPrefixes()),
      has_windows_(
          std::any_of(config_.kv_groups.begin(), config_.kv_groups.end(),
                      [](const KvGroupSpec& group) { return group.kind == KvKind::kWindow; })),
      ledger_(NewLedger(config_, config_.stages)),
      waves_(LayersOf(config_.stages)),
      timing_(PredictedMs(config_), config_.step_timeout, config_.max_batch_tokens),
      meter_(config_.stages.size()),
      fence_(config_.epoch, config_.step_timeout, config_.recovery_timeout) {
  STRATA_CHECK(!config_.stages.empty() && config_.vocab > 0 && config_.context > 0);
  STRATA_CHECK(config_.max_batch_tokens > 0 && config_.max_batch_items > 0);
  STRATA_CHECK(config_.max_sessions > 0 && config_.step_timeout.count() > 0);
}

absl::Status Engine::Impl::Check(const SessionRequest& request, TimePoint now) const {
  if (!not_admitting_.ok()) {
    return not_admitting_;
  }
  if (fence_.down()) {
    return DownStatus();
  }
  if (!IsRequestId(request.request_id)) {
    return Refuse(request, absl::StatusCode::kInvalidArgument, "BAD_REQUEST_ID",
                  "a request id has 1 to 128 printable ASCII characters");
  }
  if (by_key_.contains(request.key)) {
    return Error(absl::StatusCode::kAlreadyExists, "REQUEST_IN_FLIGHT",
                 "request \"" + request.request_id + "\" is in flight")
        .RequestId(request.request_id)
        .Hint("wait for it, cancel it, or set replace (HTTP: X-Strata-Replace: true)");
  }
  if (request.prompt.empty()) {
    return Refuse(request, absl::StatusCode::kInvalidArgument, "BAD_PROMPT",
                  "the prompt has no tokens");
  }
  for (const std::vector<uint32_t>* ids : {&request.prompt, &request.stop_ids}) {
    for (uint32_t id : *ids) {
      if (id >= config_.vocab) {
        return Error(absl::StatusCode::kInvalidArgument, "BAD_TOKEN_ID",
                     "token id " + std::to_string(id) + " is not in the vocabulary")
            .RequestId(request.request_id)
            .Limit("vocab=" + std::to_string(config_.vocab));
      }
    }
  }
  if (request.stop_ids.size() > kMaxStopIds) {
    return Refuse(request, absl::StatusCode::kInvalidArgument, "BAD_TOKEN_ID",
                  "more than 1024 stop ids");
  }
  RETURN_IF_ERROR(CheckEmbeddings(request));
  if (request.deadline.has_value() && *request.deadline <= now) {
    return Refuse(request, absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                  "the deadline has passed before the request was accepted");
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::CheckEmbeddings(const SessionRequest& request) const {
  uint64_t next = 0;
  for (const InputEmbedding& row : request.embeddings) {
    if (row.position < next || row.position >= request.prompt.size()) {
      return Error(absl::StatusCode::kInvalidArgument, "INPUT_EMBEDDINGS",
                   "input embeddings for position " + std::to_string(row.position) +
                       ": positions ascend, and are those of prompt tokens")
          .RequestId(request.request_id)
          .Limit("prompt_tokens=" + std::to_string(request.prompt.size()));
    }
    next = uint64_t{row.position} + 1;
  }
  if (const uint64_t bytes = BytesOf(request.embeddings);
      bytes > 0 && embedding_bytes_ + bytes > config_.max_input_embedding_bytes) {
    return Error(absl::StatusCode::kResourceExhausted, "INPUT_EMBEDDINGS_FULL",
                 std::to_string(bytes) + " bytes of input embeddings, and other requests hold " +
                     std::to_string(embedding_bytes_))
        .RequestId(request.request_id)
        .Limit("max_input_embeddings=" + std::to_string(config_.max_input_embedding_bytes))
        .Hint("send it again later, or raise --max-input-embeddings");
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::Submit(SessionRequest request, std::shared_ptr<SessionSink> sink,
                                  TimePoint now) {
  auto refused = [this](const absl::Status& status) {
    ++counters_.refused;
    return status;
  };
  if (absl::Status status = Check(request, now); !status.ok()) {
    return refused(status);
  }
  const absl::StatusOr<uint32_t> max_tokens = MaxTokens(request);
  if (!max_tokens.ok()) {
    return refused(max_tokens.status());
  }
  const auto prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  const uint32_t first_claim = prompt_tokens + (request.guaranteed ? *max_tokens : 1);
  const bool starts = queue_.empty() && CanStartMore() && has_room_ &&
                      ledger_.FitsWithoutCached(first_claim, Spare());
  if (!starts && queue_.size() >= config_.max_queued_requests) {
    return refused(Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                         std::to_string(queue_.size()) + " requests are queued already")
                       .RequestId(request.request_id)
                       .Limit("max_queued_requests=" + std::to_string(config_.max_queued_requests))
                       .Hint("send it again later, or raise --max-queued-requests"));
  }
  const uint64_t id = next_session_++;
  Session& session = sessions_[id];
  session.id = id;
  embedding_bytes_ += BytesOf(request.embeddings);
  session.tokens = std::move(request.prompt);
  session.request = std::move(request);
  session.request.params.set_prompt_length(prompt_tokens);
  session.sink = std::move(sink);
  session.prompt_tokens = prompt_tokens;
  session.max_tokens = *max_tokens;
  session.arrived = now;
  EnterShares(session);
  // For as long as it lives, whatever its length is: what is cached of it was turned so.
  const bool is_long = config_.long_rotary_above != 0 &&
                       uint64_t{prompt_tokens} + *max_tokens > config_.long_rotary_above;
  session.request.params.set_rotary_variant(is_long ? 1 : 0);
  session.sent_fingerprint = session.committed_fingerprint = RootOf(session.request);
  by_key_[session.request.key] = id;
  queue_.emplace(session.rank(), &session);
  if (session.request.deadline.has_value()) {
    deadlines_.emplace(*session.request.deadline, id);
  }
  ++counters_.submitted;
  Pump(now);
  return absl::OkStatus();
}

void Engine::Impl::Pump(TimePoint now) {
  if (!fence_.running()) {
    return;
  }
  now_ = now;
  ExpireDeadlines(now);
  has_room_ = GrowClaims();
  // Nobody new while somebody waits for pages, or has just given way.
  if (has_room_ || running_.empty()) {
    Admit(now);
  } else if (!queue_.empty() && CanStartMore() && ledger_.cached_pages() > 0) {
    EvictForQueue(NextInQueue());  // Or they would wait for that too, once nobody else does.
  }
  BeginSessions();
  while (in_flight_.size() <= config_.stages.size() && SendNextStep(now)) {
  }
}

Engine::Impl::Session* Engine::Impl::Find(uint64_t id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

void Engine::Impl::EndSession(Session& session) {
  if (session.generation != 0) {
    if (!KeepSequence(session)) {
      Detach(session, 0);
    }
  } else {
    Unbegin(session);
    if (session.claim.has_value()) {
      ledger_.Free(*session.claim);  // Nothing was ever sent under it.
    }
    CancelHandover(session);
  }
  if (session.request.deadline.has_value()) {
    deadlines_.erase({*session.request.deadline, session.id});
  }
  queue_.erase(session.rank());
  running_.erase(session.rank());
  parked_.erase(session.rank());
  LeaveShares(session);
  embedding_bytes_ -= BytesOf(session.request.embeddings);
  by_key_.erase(session.request.key);
  suspects_.Forget(session.id);
  sessions_.erase(session.id);
}

void Engine::Impl::FinishSession(Session& session, const char* reason, TimePoint now) {
  FinishInfo info;
  info.reason = reason;
  info.prompt_tokens = session.prompt_tokens;
  info.completion_tokens = session.generated();
  info.cached_tokens = session.cached_tokens.value_or(0);
  info.queued = session.started.value_or(now) - session.arrived;
  info.first_token = session.first_token.value_or(session.arrived) - session.arrived;
  info.total = now - session.arrived;
  info.steps = session.steps;
  info.times = session.times;
  info.preemptions = session.preemptions;
  const std::shared_ptr<SessionSink> sink = session.sink;
  EndSession(session);
  ++counters_.done;
  sink->OnDone(info);
}

void Engine::Impl::FailSession(Session& session, const absl::Status& why) {
  v1::ErrorDetail detail = DetailOf(why);
  detail.set_request_id(session.request.request_id);
  const std::shared_ptr<SessionSink> sink = session.sink;
  EndSession(session);
  ++counters_.failed;
  sink->OnFailed(StatusOf(detail));
}

bool Engine::Impl::Cancel(std::string_view key, const absl::Status& why, TimePoint now) {
  const auto it = by_key_.find(std::string(key));
  if (it == by_key_.end()) {
    return false;
  }
  Session& session = sessions_.at(it->second);
  if (why.ok()) {
    FinishSession(session, "cancelled", now);
  } else {
    FailSession(session, why);
  }
  Pump(now);
  return true;
}

bool Engine::Impl::SetPaused(std::string_view key, bool paused, TimePoint now) {
  const auto it = by_key_.find(std::string(key));
  if (it == by_key_.end()) {
    return false;
  }
  Session& session = sessions_.at(it->second);
  if (paused && !session.paused) session.paused_since = now;
  session.paused = paused;
  if (!paused && parked_.erase(session.rank()) > 0) {
    queue_.emplace(session.rank(), &session);  // Before those that came later.
  }
  Pump(now);
  return true;
}

void Engine::Impl::StopAdmitting(const absl::Status& why) {
  STRATA_CHECK(!why.ok());
  not_admitting_ = why;
}

void Engine::Impl::FailAll(const absl::Status& why, TimePoint now) {
  while (!sessions_.empty()) {
    FailSession(sessions_.begin()->second, why);
  }
  Pump(now);
}

void Engine::Impl::Stop(const absl::Status& why, TimePoint now) {
  StopAdmitting(why);
  fence_.Stop();
  in_flight_.clear();
  FailAll(why, now);
}

EngineSnapshot Engine::Impl::Snapshot(TimePoint now) const {
  EngineSnapshot snapshot;
  snapshot.state = fence_.state();
  snapshot.epoch = fence_.epoch();
  snapshot.steps_in_flight = static_cast<uint32_t>(in_flight_.size());
  snapshot.kv_tokens = ledger_.capacity_tokens();
  if (snapshot.kv_tokens == kMaxContextTokens) {
    snapshot.kv_tokens = config_.context;  // Windows bound none.
  }
  snapshot.limiting_node = config_.stages[ledger_.limiting_stage()].node;
  snapshot.cached_sequences = static_cast<uint32_t>(prefix_.kept());
  const SchedulerSnapshot view = SchedulerView();
  const StepPace pace = PaceOf(view);
  snapshot.token_budget = view.token_budget;
  snapshot.max_batch_tokens = config_.max_batch_tokens;
  snapshot.max_sessions = config_.max_sessions;
  snapshot.micro_batches = pace.batches;
  snapshot.prefill_step_ms = pace.slices > 1 ? pace.slice_ms : pace.step_ms;
  snapshot.inter_token_target_ms = ToMs(config_.inter_token_target);
  snapshot.hop_ms = timing_.HopMs();
  for (const auto& [id, session] : sessions_) {
    const char* state = !session.started.has_value()       ? "queued"
                        : parked_.contains(session.rank()) ? "paused"
                        : queue_.contains(session.rank())  ? "preempted"
                        : session.replaying                ? "replaying"
                        : session.waits_for_reader()       ? "paused"
                        : session.generated() > 0          ? "decode"
                                                           : "prefill";
    snapshot.sessions.push_back({session.request.key, session.request.request_id, state,
                                 session.prompt_tokens, session.generated(), session.max_tokens,
                                 session.request.guaranteed, now - session.arrived, session.steps,
                                 session.times});
  }
  snapshot.kv = ledger_.Snapshot();
  if (!fence_.running() && !fence_.last_fault().ok()) {
    snapshot.problems.push_back({Describe(fence_.last_fault()), DetailOf(DownStatus()).hint()});
  }
  if (quarantine_.has_value()) {
    snapshot.problems.push_back(*quarantine_);
  }
  snapshot.counters = counters_;
  snapshot.nodes = Nodes();
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
PromptLimit Engine::LongestPrompt() const { return impl_->LongestPrompt(); }
bool Engine::Cancel(std::string_view key, const absl::Status& why, TimePoint now) {
  return impl_->Cancel(key, why, now);
}
bool Engine::SetPaused(std::string_view key, bool paused, TimePoint now) {
  return impl_->SetPaused(key, paused, now);
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
void Engine::Suspend(std::vector<EngineStage> stages, TimePoint now) {
  impl_->Suspend(std::move(stages), now);
}
void Engine::LoseStages(const absl::Status& why, TimePoint now) { impl_->LoseStages(why, now); }
void Engine::Resume(uint64_t epoch, TimePoint now) { impl_->Resume(epoch, now); }
void Engine::StopAdmitting(const absl::Status& why) { impl_->StopAdmitting(why); }
void Engine::FailAll(const absl::Status& why, TimePoint now) { impl_->FailAll(why, now); }
void Engine::Stop(const absl::Status& why, TimePoint now) { impl_->Stop(why, now); }
size_t Engine::live_sessions() const { return impl_->live_sessions(); }
bool Engine::IsLive(std::string_view key) const { return impl_->IsLive(key); }
bool Engine::down() const { return impl_->down(); }
uint64_t Engine::epoch() const { return impl_->epoch(); }
std::optional<TimePoint> Engine::NextWake() const { return impl_->NextWake(); }
void Engine::Tick(TimePoint now) { impl_->Tick(now); }
EngineSnapshot Engine::Snapshot(TimePoint now) const { return impl_->Snapshot(now); }

}  // namespace strata
