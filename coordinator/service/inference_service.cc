#include "coordinator/service/inference_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/rpc/blocking_call.h"
#include "common/rpc/io_answers.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "coordinator/service/errors.h"
#include "coordinator/service/request.h"
#include "coordinator/service/text_stream.h"

namespace strata {
namespace {

// Logits travel in messages of about this size.
constexpr size_t kRowsMessageBytes = size_t{1} << 20;

uint64_t DrawSeed() {
  thread_local std::random_device device;
  // 53 bits, so that every JSON reader keeps them.
  return (uint64_t{device()} << 32 | device()) >> 11;
}

std::string DrawRequestId() {
  thread_local std::random_device device;
  static constexpr char kAlphabet[] = "0123456789abcdefghijkmnpqrstuvwxyz";
  std::string id = "req-";
  for (int i = 0; i < 20; ++i) {
    id += kAlphabet[device() % (sizeof(kAlphabet) - 1)];
  }
  return id;
}

// A text may keep one of them for long; the others' are short.
size_t TextThreads() { return std::clamp<size_t>(std::thread::hardware_concurrency(), 4, 16); }

RequestContext NewContext() {
  return {DrawSeed(), DrawRequestId(), static_cast<int64_t>(std::time(nullptr))};
}

std::optional<TimePoint> DeadlineOf(const grpc::ServerContext& context, TimePoint now) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  // No deadline reads as one that is centuries away.
  if (left > std::chrono::hours(24 * 365)) {
    return std::nullopt;
  }
  return now + std::chrono::duration_cast<nanoseconds>(left);
}

// A call's session at the engine, as far as a cancel may end it: a late one must not end another
// session of the same id. On the event loop, but for `key` before it is submitted.
struct Session {
  std::string key;
  bool live = false;  // From Submit until its end.
};

}  // namespace

// One Generate call, from when the server may take it.
class InferenceServiceImpl::GenerateCall final
    : public IoAnswers<v1::GenerateRequest, v1::GenerateResponse> {
 public:
  GenerateCall(InferenceServiceImpl* service, IoLoop* loop)
      : IoAnswers(loop, service->options_.max_unread_bytes), service_(service) {
    Await([&](auto* context, auto* request, auto* writer, void* tag) {
      service_->service_->RequestGenerate(context, request, writer, loop->queue(),
                                          loop->server_queue(), tag);
    });
  }

 private:
  void OnAccepted() override {
    new GenerateCall(service_, loop());
    const absl::Status taken = service_->text_.Run([this] { Prepare(); });
    if (!taken.ok()) {
      Close(ToGrpc(taken));
    }
  }

  void OnCancelled() override {
    cancelled_ = true;  // Before the loop looks: whoever submits later sees it.
    Coordinator* const coordinator = service_->coordinator_;
    coordinator->PostToLoop([coordinator, session = session_] {
      if (session->live) coordinator->CancelRequest(session->key, absl::OkStatus());
    });
  }

  // Off the loop: templates and texts may be long.
  void Prepare();
  // On the event loop. The status of a call that did not get as far as the engine.
  absl::Status Submit(const Coordinator::Serving& serving, ResolvedRequest* request,
                      const std::shared_ptr<GenerateSink>& sink);

  InferenceServiceImpl* const service_;
  std::atomic<bool> cancelled_ = false;
  const std::shared_ptr<Session> session_ = std::make_shared<Session>();
};

// Turns what the engine says into messages. On the loop.
class InferenceServiceImpl::GenerateSink final : public SessionSink {
 public:
  GenerateSink(GenerateCall* call, std::shared_ptr<Session> session,
               std::shared_ptr<const ModelRuntime> model, const ResolvedRequest& request)
      : call_(call),
        session_(std::move(session)),
        model_(std::move(model)),
        request_id_(request.session.request_id),
        seed_(request.session.params.sampling().seed()),
        wants_logprobs_(request.session.params.logprobs()),
        text_(model_->tokenizer == nullptr
                  ? nullptr
                  : model_->tokenizer->NewStream(request.session.prompt, true),
              request.stops) {}

  void SetServing(std::string numerics_class, uint64_t plan_epoch) {
    numerics_class_ = std::move(numerics_class);
    plan_epoch_ = plan_epoch;
  }

  void OnStarted(const StartedInfo& info) override {
    v1::GenerateResponse response;
    response.set_request_id(request_id_);
    v1::Started* started = response.mutable_started();
    started->set_seed(seed_);
    started->set_numerics_class(numerics_class_);
    started->set_plan_epoch(plan_epoch_);
    started->set_prompt_tokens(info.prompt_tokens);
    started->set_max_tokens(info.max_tokens);
    call_->Push(std::move(response));
  }

  void OnRows(const RowsInfo& rows) override {
    if (!rows.prompt_logprobs.empty()) {
      v1::GenerateResponse response;
      for (const v1::TokenLogprob* logprob : rows.prompt_logprobs) {
        *response.add_prompt_logprobs() = *logprob;
        if (response.ByteSizeLong() > kRowsMessageBytes) {
          call_->Push(std::exchange(response, {}));
        }
      }
      call_->Push(std::move(response));
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
      call_->Push(std::move(response));
    }
  }

  Verdict OnToken(const TokenInfo& token) override {
    v1::GenerateResponse response;
    response.add_token_ids(token.token.token_id());
    if (!token.is_stop_id) {
      response.set_text(text_.Add(token.token.token_id()));
    }
    if (wants_logprobs_) {
      *response.add_logprobs() = token.token;
    }
    call_->Push(std::move(response));
    return text_.stopped() ? Verdict::kStop : Verdict::kContinue;
  }

  void OnDone(const FinishInfo& info) override {
    session_->live = false;
    v1::GenerateResponse response;
    response.set_text(text_.Finish());
    v1::Finish* finish = response.mutable_finish();
    finish->set_reason(info.reason);
    finish->set_prompt_tokens(info.prompt_tokens);
    finish->set_completion_tokens(info.completion_tokens);
    finish->set_cached_tokens(info.cached_tokens);
    finish->set_queue_ms(ToMs(info.queued));
    finish->set_ttft_ms(ToMs(info.first_token));
    finish->set_total_ms(ToMs(info.total));
    call_->Push(std::move(response));
    call_->Close(grpc::Status::OK);
  }

  void OnFailed(const absl::Status& status) override {
    session_->live = false;
    v1::ErrorDetail detail = DetailOf(status);
    detail.set_request_id(request_id_);
    call_->Close(ToGrpc(StatusOf(detail)));
  }

 private:
  GenerateCall* const call_;  // Lives until Close.
  const std::shared_ptr<Session> session_;
  const std::shared_ptr<const ModelRuntime> model_;
  const std::string request_id_;
  const uint64_t seed_;
  const bool wants_logprobs_;
  TextStream text_;
  std::string numerics_class_;
  uint64_t plan_epoch_ = 0;
};

void InferenceServiceImpl::GenerateCall::Prepare() {
  Coordinator* const coordinator = service_->coordinator_;
  if (cancelled_) {
    Close(grpc::Status::CANCELLED);
    return;
  }
  auto model = coordinator->models()->Get(request().model());
  auto resolved = model.ok() ? ResolveRequest(request(), **model, NewContext())
                             : absl::StatusOr<ResolvedRequest>(model.status());
  if (!resolved.ok()) {
    Close(ToGrpc(resolved.status()));
    return;
  }
  resolved->session.deadline = DeadlineOf(context(), coordinator->Now());
  session_->key = resolved->session.key;
  auto sink = std::make_shared<GenerateSink>(this, session_, *model, *resolved);
  auto shared = std::make_shared<ResolvedRequest>(*std::move(resolved));
  const absl::Status taken =
      coordinator->WithEngine(request().model(), [this, sink, shared](const auto& serving) {
        if (absl::Status status = Submit(serving, shared.get(), sink); !status.ok()) {
          session_->live = false;
          Close(ToGrpc(status));
        }
      });
  if (!taken.ok()) {
    Close(ToGrpc(taken));
  }
}

absl::Status InferenceServiceImpl::GenerateCall::Submit(const Coordinator::Serving& serving,
                                                        ResolvedRequest* request,
                                                        const std::shared_ptr<GenerateSink>& sink) {
  RETURN_IF_ERROR(serving.problem);
  session_->live = true;
  if (cancelled_) {
    return absl::CancelledError();
  }
  Coordinator* const coordinator = service_->coordinator_;
  RETURN_IF_ERROR(coordinator->ClaimKey(session_->key, request->replace));
  sink->SetServing(serving.numerics_class, serving.plan_epoch);
  return serving.engine->Submit(std::move(request->session), sink, coordinator->Now());
}

InferenceServiceImpl::InferenceServiceImpl(Coordinator* coordinator, InferenceOptions options)
    : coordinator_(coordinator),
      options_(options),
      text_({.threads = TextThreads(),
             .waiting = options.max_waiting_calls,
             .name = "waiting_calls",
             .hint = "try again in a moment, or raise --max-waiting-calls of strata-coordinator"}) {
}

grpc::Service* InferenceServiceImpl::NewService() {
  service_ = std::make_unique<v1::InferenceService::AsyncService>();
  return service_.get();
}

void InferenceServiceImpl::Serve(IoLoop* loop) {
  using Async = v1::InferenceService::AsyncService;
  new GenerateCall(this, loop);
  const BlockingMethods text(service_.get(), loop, &text_);
  text.Serve(&Async::RequestTokenize, [this](auto*, const auto* request, auto* response) {
    return ToGrpc(Tokenize(*request, response));
  });
  text.Serve(&Async::RequestDetokenize, [this](auto*, const auto* request, auto* response) {
    return ToGrpc(Detokenize(*request, response));
  });
}

absl::Status InferenceServiceImpl::Tokenize(const v1::TokenizeRequest& request,
                                            v1::TokenizeResponse* response) {
  ASSIGN_OR_RETURN(const auto model, coordinator_->models()->Get(request.model()));
  std::vector<uint32_t> ids;
  if (request.has_chat()) {
    ASSIGN_OR_RETURN(std::string prompt, model->RenderChat(request.chat(), std::time(nullptr)));
    ASSIGN_OR_RETURN(ids, model->Encode(prompt, false));
    response->set_prompt(std::move(prompt));
  } else {
    ASSIGN_OR_RETURN(ids, model->Encode(request.text(), request.add_special_tokens()));
  }
  response->mutable_ids()->Add(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status InferenceServiceImpl::Detokenize(const v1::DetokenizeRequest& request,
                                              v1::DetokenizeResponse* response) {
  ASSIGN_OR_RETURN(const auto model, coordinator_->models()->Get(request.model()));
  if (model->tokenizer == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "NO_TOKENIZER",
                 "model '" + model->name + "' has no tokenizer");
  }
  const std::vector<uint32_t> ids(request.ids().begin(), request.ids().end());
  response->set_text(model->tokenizer->Decode(ids, request.skip_special_tokens()));
  return absl::OkStatus();
}

}  // namespace strata
