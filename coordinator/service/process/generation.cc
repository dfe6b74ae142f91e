#include "coordinator/service/process/generation.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "common/status.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/service/constraints/answer_rules.h"
#include "coordinator/service/constraints/constraint_reading.h"
#include "coordinator/service/process/request_log.h"
#include "coordinator/service/request/chat_answer.h"
#include "coordinator/service/request/request_draws.h"
#include "coordinator/service/request/text_stream.h"

namespace strata {
namespace {

// Tokens of an answer are charged when there are so many new ones, and at its end.
constexpr uint64_t kChargeEvery = 16;
// Logits travel in messages of about this size.
constexpr size_t kRowsMessageBytes = size_t{1} << 20;

RequestContext NewContext(uint32_t default_max_tokens) {
  return {DrawSeed(), DrawRequestId(), static_cast<int64_t>(std::time(nullptr)),
          default_max_tokens};
}

}  // namespace

// Turns what the engine says into messages. On the loop.
class Generation::Sink final : public SessionSink {
 public:
  Sink(std::shared_ptr<Generation> generation, std::shared_ptr<const ModelRuntime> model,
       const ResolvedRequest& request)
      : generation_(std::move(generation)),
        receiver_(generation_->receiver_),
        model_(std::move(model)),
        request_id_(request.session.request_id),
        seed_(request.session.params.sampling().seed()),
        wants_logprobs_(request.session.params.logprobs()),
        charged_prompt_(generation_->charge_prompt_ ? request.prompt->size() : 0),
        metrics_(generation_->coordinator_->metrics(), model_->name),
        log_(request_id_, model_->name, generation_->coordinator_->log_requests()),
        chat_(request.chat),
        // The same for the same request, and another for each turn of a conversation.
        id_seed_(request_id_ + "/" + std::to_string(seed_) + "/" +
                 std::to_string(request.session.params.sampling().choice()) + "/" +
                 std::to_string(request.prompt->size())),
        text_(model_->tokenizer == nullptr ? nullptr
                                           : model_->tokenizer->NewStream(*request.prompt, true),
              request.stops, request.session.params.min_tokens()) {}

  absl::Status SetServing(const Serving& serving) {
    numerics_class_ = serving.numerics_class;
    plan_epoch_ = serving.plan_epoch;
    log_.SetServing(serving.deployment, serving.plan_epoch);
    if (chat_.has_value()) {
      ASSIGN_OR_RETURN(reader_, ChatReader::Make(*model_, *serving.load_options, *chat_, id_seed_));
    }
    return absl::OkStatus();
  }

  // It runs, waits, or is refused by the engine.
  void OnDecided(const AdmissionTimes& times, bool accepted) {
    const TimePoint now = generation_->coordinator_->Now();
    metrics_.OnDecided(times, now);
    if (accepted) log_.Accepted(now - times.arrived);
  }

  // It did not get as far as the engine.
  void OnRefused(const absl::Status& status) {
    metrics_.OnRefused(status);
    log_.Refused(status);
    if (generation_->use_ != nullptr) generation_->use_->GiveBack(charged_prompt_);
    generation_->End(status);
  }

  void OnStarted(const StartedInfo& info) override {
    started_at_ = generation_->coordinator_->Now();
    metrics_.OnStarted(info, started_at_);
    log_.Started(info);
    v1::GenerateResponse response;
    response.set_request_id(request_id_);
    v1::Started* started = response.mutable_started();
    started->set_seed(seed_);
    started->set_numerics_class(numerics_class_);
    said_class_ = numerics_class_;
    started->set_plan_epoch(plan_epoch_);
    started->set_prompt_tokens(info.prompt_tokens);
    started->set_max_tokens(info.max_tokens);
    receiver_->OnMessage(std::move(response));
  }

  void OnRows(const RowsInfo& rows) override {
    if (!rows.prompt_logprobs.empty()) {
      v1::GenerateResponse response;
      for (const v1::TokenLogprob* logprob : rows.prompt_logprobs) {
        *response.add_prompt_logprobs() = *logprob;
        if (response.ByteSizeLong() > kRowsMessageBytes) {
          receiver_->OnMessage(std::exchange(response, {}));
        }
      }
      receiver_->OnMessage(std::move(response));
    }
    const size_t vocab = model_->spec().vocab;
    const size_t count = rows.logits.size() / vocab;
    const size_t at_once = std::max<size_t>(1, kRowsMessageBytes / (vocab * sizeof(float)));
    for (size_t row = 0; row < count; row += at_once) {
      const size_t n = std::min(at_once, count - row);
      v1::GenerateResponse response;
      v1::FloatRows* out = response.mutable_logits();
      out->set_rows(static_cast<uint32_t>(n));
      out->set_columns(static_cast<uint32_t>(vocab));
      out->set_values(reinterpret_cast<const char*>(rows.logits.data() + row * vocab),
                      n * vocab * sizeof(float));
      receiver_->OnMessage(std::move(response));
    }
  }

  void OnNumericsClass(const std::string& name) override { numerics_class_ = name; }

  Verdict OnToken(const TokenInfo& token) override {
    const TimePoint now = generation_->coordinator_->Now();
    metrics_.OnToken(now);
    if (token.index == 0) log_.FirstToken(now - started_at_);
    v1::GenerateResponse response;
    if (numerics_class_ != said_class_) {
      response.set_numerics_class(numerics_class_);
      said_class_ = numerics_class_;
    }
    response.add_token_ids(token.token.token_id());
    if (++uncharged_ == kChargeEvery) Charge();
    if (!token.is_stop_id) Read(token.token.token_id(), &response);
    if (wants_logprobs_) {
      *response.add_logprobs() = token.token;
    }
    receiver_->OnMessage(std::move(response));
    const bool ended = text_.stopped() || (reader_ != nullptr && reader_->full());
    return ended ? Verdict::kStop : Verdict::kContinue;
  }

  void OnDone(const FinishInfo& info) override {
    metrics_.OnDone(info);
    log_.Done(info);
    generation_->live_ = false;
    Charge();
    v1::GenerateResponse response;
    std::string rest = text_.Finish();
    v1::Finish* finish = response.mutable_finish();
    finish->set_reason(info.reason);
    if (reader_ == nullptr) {
      response.set_text(std::move(rest));
    } else {
      reader_->Add(rest);
      reader_->Finish();
      reader_->Tell(&response);
      if (info.reason == "stop" && reader_->calls()) finish->set_reason("tool_calls");
      finish->set_reasoning_tokens(thought_tokens_);
    }
    finish->set_prompt_tokens(info.prompt_tokens);
    finish->set_completion_tokens(info.completion_tokens);
    finish->set_cached_tokens(info.cached_tokens);
    finish->set_drafted_tokens(info.drafted_tokens);
    finish->set_accepted_tokens(info.accepted_tokens);
    finish->set_queue_ms(ToMs(info.queued));
    finish->set_ttft_ms(ToMs(info.first_token));
    finish->set_total_ms(ToMs(info.total));
    receiver_->OnMessage(std::move(response));
    generation_->End(absl::OkStatus());
  }

  void OnFailed(const absl::Status& status) override {
    metrics_.OnFailed(status);
    log_.Failed(status);
    generation_->live_ = false;
    Charge();
    v1::ErrorDetail detail = DetailOf(status);
    detail.set_request_id(request_id_);
    generation_->End(StatusOf(detail));
  }

 private:
  // What the answer says with token `id`, into `response`.
  void Read(uint32_t id, v1::GenerateResponse* response) {
    if (reader_ == nullptr) {
      response->set_text(text_.Add(id));
      return;
    }
    const bool was_thought = reader_->in_thought();
    if (reader_->holds_calls()) {
      text_.Add(id, [this](std::string_view text) {
        reader_->Add(text);
        return reader_->in_call();
      });
    } else {
      reader_->Add(text_.Add(id));
    }
    if (!text_.stopped() && reader_->IsToken(id)) {
      reader_->Add(text_.Break());
      reader_->AddToken(id);
      if (reader_->holds_calls() && reader_->in_call()) text_.EndStops();
    }
    reader_->Tell(response);
    thought_tokens_ += was_thought || reader_->in_thought() ? 1 : 0;
  }

  void Charge() {
    if (generation_->use_ != nullptr && uncharged_ > 0) {
      generation_->use_->Generated(uncharged_, generation_->coordinator_->Now());
    }
    uncharged_ = 0;
  }

  const std::shared_ptr<Generation> generation_;
  GenerationReceiver* const receiver_;  // Lives until OnEnd.
  const std::shared_ptr<const ModelRuntime> model_;
  const std::string request_id_;
  const uint64_t seed_;
  const bool wants_logprobs_;
  const uint64_t charged_prompt_;  // Tokens of it that were.
  uint64_t uncharged_ = 0;
  RequestMetrics metrics_;
  RequestLog log_;
  const std::optional<ChatAnswer> chat_;
  const std::string id_seed_;
  TextStream text_;
  std::unique_ptr<ChatReader> reader_;  // Null: all of the answer is text.
  uint32_t thought_tokens_ = 0;
  TimePoint started_at_{0};
  std::string numerics_class_;
  std::string said_class_;  // To the client.
  uint64_t plan_epoch_ = 0;
};

void Generation::Cancel() {
  cancelled_ = true;  // Before the loop looks: whoever submits later sees it.
  coordinator_->PostToLoop([self = shared_from_this()] {
    if (self->live_) self->coordinator_->requests()->Cancel(self->key_, absl::OkStatus());
  });
}

void Generation::ReaderChanged() {
  // Asked on the loop: whoever is told last knows it as it is.
  coordinator_->PostToLoop([self = shared_from_this()] {
    if (self->live_) self->coordinator_->requests()->Pause(self->key_, self->receiver_->Behind());
  });
}

void Generation::End(const absl::Status& status) {
  use_.reset();
  receiver_->OnEnd(status);
}

absl::Status Generation::Admit(ResolvedRequest* request) {
  SessionRequest& session = request->session;
  const Caller* caller = nullptr;
  if (use_ != nullptr) {
    RETURN_IF_ERROR(use_->Admit(session.request_id, request->replace,
                                charge_prompt_ ? request->prompt->size() : 0, coordinator_->Now()));
    caller = use_->caller();
  }
  session.key = key_ = ScopedId(caller, session.request_id);
  if (caller != nullptr) session.cache_salt = caller->id();
  return absl::OkStatus();
}

void Generation::Run(const v1::GenerateRequest& request) {
  if (times_.taken.count() == 0) times_.taken = coordinator_->Now();
  const std::shared_ptr<SharedPrompt> prompt = std::exchange(prompt_, nullptr);
  if (cancelled_) {
    End(absl::CancelledError());
    return;
  }
  auto model = coordinator_->models()->Get(request.model());
  RequestContext context = NewContext(default_max_tokens_);
  context.prompt = prompt.get();
  context.limit = [this, &request] {
    return coordinator_->requests()->LongestPrompt(request.model());
  };
  const absl::Status wanted = model.ok()
                                  ? CheckMayRun(request, deadline_, use_.get(), coordinator_->Now())
                                  : model.status();
  auto resolved = wanted.ok() ? ResolveRequest(request, **model, context)
                              : absl::StatusOr<ResolvedRequest>(wanted);
  const absl::Status admitted = resolved.ok() ? Admit(&*resolved) : resolved.status();
  if (!admitted.ok()) {
    if (model.ok()) {
      RequestMetrics metrics(coordinator_->metrics(), (*model)->name);
      metrics.OnDecided(times_, coordinator_->Now());
      metrics.OnRefused(admitted);
    }
    const std::string& id =
        request.request_id().empty() ? context.drawn_request_id : request.request_id();
    RequestLog(id, model.ok() ? (*model)->name : "", coordinator_->log_requests())
        .Refused(admitted);
    End(admitted);
    return;
  }
  resolved->session.deadline = deadline_;
  resolved->session.weights_digest = (*model)->weights_digest();
  auto sink = std::make_shared<Sink>(shared_from_this(), *model, *resolved);
  auto shared = std::make_shared<ResolvedRequest>(*std::move(resolved));
  auto held = Wanted(**model, shared.get());
  if (!held.ok()) {
    sink->OnRefused(held.status());
    return;
  }
  if (!held->has_value()) {
    HandOver(request.model(), shared, sink);
    return;
  }
  (*held)->still = [self = shared_from_this()] { return self->Still(); };
  const Caller* const caller = use_ == nullptr ? nullptr : use_->caller();
  coordinator_->constraints()->Prepare(
      *model, **std::move(held), caller == nullptr ? "" : caller->id(), key_,
      [self = shared_from_this(), name = request.model(), shared, sink](auto constraint) {
        if (!constraint.ok()) {
          sink->OnRefused(constraint.status());
          return;
        }
        shared->session.constraint = *std::move(constraint);
        self->HandOver(name, shared, sink);
      });
}

absl::Status Generation::Still() const {
  if (cancelled_) {
    return absl::CancelledError();
  }
  if (deadline_.has_value() && coordinator_->Now() >= *deadline_) {
    return Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                 "the deadline passed before the constraint was compiled")
        .Hint("give it longer: the second time a constraint is there at once");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<AnswerWanted>> Generation::Wanted(const ModelRuntime& model,
                                                               ResolvedRequest* request) const {
  const std::optional<ChatAnswer>& chat = request->chat;
  const bool has_tools = chat.has_value() && chat->offered != nullptr;
  const bool budget = chat.has_value() && chat->thought_budget_tokens.has_value();
  if (!request->constraint.has_value() && !has_tools && !budget) {
    return std::nullopt;
  }
  AnswerWanted wanted;
  if (request->constraint.has_value()) {
    RETURN_IF_ERROR(CheckConstraint(*request->constraint,
                                    coordinator_->constraints()->options().max_source_bytes));
    wanted.constraint = std::move(request->constraint);
  }
  if (model.tokenizer == nullptr) {
    return model.tokenizer_problem;
  }
  if (chat.has_value()) {
    ASSIGN_OR_RETURN(const v1::LoadOptions options,
                     coordinator_->requests()->LoadOptionsOf(model.name));
    ASSIGN_OR_RETURN(wanted.calls,
                     CallsWantedOf(model, options, *chat, wanted.constraint.has_value()));
    if (wanted.constraint.has_value() || wanted.calls.has_value() || budget) {
      ASSIGN_OR_RETURN(wanted.rule.thought, ThoughtRuleOf(model, options, *chat, wanted.calls,
                                                          chat->thought_budget_tokens));
    }
  }
  if (wanted.constraint.has_value() || wanted.calls.has_value()) {
    // Its masks bar what ends the answer, as long as something else may come.
    SessionRequest& session = request->session;
    wanted.rule.min_tokens = session.params.min_tokens();
    wanted.rule.ignore_eos = session.ignore_eos;
    session.params.clear_stop_ids();
    session.ignore_eos = false;
  } else if (!wanted.rule.thought.has_value()) {
    return std::nullopt;  // Nothing, or the prompt has ended the thought.
  }
  return wanted;
}

void Generation::HandOver(const std::string& model, const std::shared_ptr<ResolvedRequest>& shared,
                          const std::shared_ptr<Sink>& sink) {
  times_.prepared = coordinator_->Now();
  const absl::Status taken =
      coordinator_->requests()->WithEngine(model, [this, sink, shared](const auto& serving) {
        times_.on_loop = coordinator_->Now();
        const absl::Status status = Submit(serving, shared.get(), sink);
        sink->OnDecided(times_, status.ok());
        if (!status.ok()) {
          live_ = false;
          sink->OnRefused(status);
        }
      });
  if (!taken.ok()) {
    sink->OnRefused(taken);
  }
}

absl::Status Generation::Submit(const Serving& serving, ResolvedRequest* request,
                                const std::shared_ptr<Sink>& sink) {
  RETURN_IF_ERROR(serving.problem);
  live_ = true;
  if (cancelled_) {
    return absl::CancelledError();
  }
  RETURN_IF_ERROR(sink->SetServing(serving));
  RETURN_IF_ERROR(coordinator_->requests()->ClaimId(request->session, request->replace));
  // The session's own, to which its answer is added: no earlier than it may be refused or run.
  request->session.prompt = *request->prompt;
  RETURN_IF_ERROR(serving.engine->Submit(std::move(request->session), sink, coordinator_->Now()));
  if (live_ && receiver_->Behind()) coordinator_->requests()->Pause(key_, true);
  return absl::OkStatus();
}

}  // namespace strata
