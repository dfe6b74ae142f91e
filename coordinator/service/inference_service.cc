#include "coordinator/service/inference_service.h"

#include <algorithm>
#include <ctime>
#include <deque>
#include <memory>
#include <random>
#include <utility>

#include "common/mutex.h"
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

RequestContext NewContext() {
  return {DrawSeed(), DrawRequestId(), static_cast<int64_t>(std::time(nullptr))};
}

// One Generate call: a queue of messages between the engine's thread and gRPC's. Deletes itself
// when gRPC is done with it, which is after Close.
class GenerateCall final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  // `on_cancel` ends the session; it may be called more than once.
  GenerateCall(grpc::CallbackServerContext* context, size_t max_unread_bytes,
               std::function<void()> on_cancel)
      : context_(context), max_unread_bytes_(max_unread_bytes), on_cancel_(std::move(on_cancel)) {}

  void Push(v1::GenerateResponse response) {
    MutexLock lock(&mutex_);
    if (broken_ || closed_) {
      return;
    }
    queued_bytes_ += response.ByteSizeLong();
    if (!queue_.empty() && queued_bytes_ > max_unread_bytes_) {
      // The client is cut off; what is being written stays until gRPC lets go of it.
      broken_ = true;
      queue_.resize(1);
      on_cancel_();
      context_->TryCancel();
      return;
    }
    queue_.push_back(std::move(response));
    if (queue_.size() == 1) {
      StartWrite(&queue_.front());
    }
  }

  // After the last Push; exactly once. Nothing may be called afterwards.
  void Close(const absl::Status& status) {
    MutexLock lock(&mutex_);
    closed_ = true;
    status_ = ToGrpc(status);
    if (queue_.empty()) {
      Finish(status_);
    }
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    queued_bytes_ -= std::min(queued_bytes_, queue_.front().ByteSizeLong());
    queue_.pop_front();
    if (!ok) {
      broken_ = true;
      queue_.clear();
    }
    if (!queue_.empty()) {
      StartWrite(&queue_.front());
    } else if (closed_) {
      Finish(status_);
    }
  }
  void OnCancel() override { on_cancel_(); }
  void OnDone() override {
    // gRPC may be here before the Close that handed Finish over has let go of the lock.
    { MutexLock lock(&mutex_); }
    delete this;
  }

 private:
  grpc::CallbackServerContext* const context_;
  const size_t max_unread_bytes_;
  const std::function<void()> on_cancel_;
  Mutex mutex_;
  size_t queued_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
  std::deque<v1::GenerateResponse> queue_ STRATA_GUARDED_BY(mutex_);
  bool broken_ STRATA_GUARDED_BY(mutex_) = false;
  bool closed_ STRATA_GUARDED_BY(mutex_) = false;
  grpc::Status status_ STRATA_GUARDED_BY(mutex_);
};

// Turns what the engine says into messages. On the loop.
class GenerateSink final : public SessionSink {
 public:
  // `live` is true, on the loop, from Submit until the session's end.
  GenerateSink(GenerateCall* call, std::shared_ptr<bool> live,
               std::shared_ptr<const ModelRuntime> model, const ResolvedRequest& request)
      : call_(call),
        live_(std::move(live)),
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
    *live_ = false;
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
    call_->Close(absl::OkStatus());
  }

  void OnFailed(const absl::Status& status) override {
    *live_ = false;
    v1::ErrorDetail detail = DetailOf(status);
    detail.set_request_id(request_id_);
    call_->Close(StatusOf(detail));
  }

 private:
  GenerateCall* const call_;  // Lives until Close.
  const std::shared_ptr<bool> live_;
  const std::shared_ptr<const ModelRuntime> model_;
  const std::string request_id_;
  const uint64_t seed_;
  const bool wants_logprobs_;
  TextStream text_;
  std::string numerics_class_;
  uint64_t plan_epoch_ = 0;
};

std::optional<TimePoint> DeadlineOf(const grpc::CallbackServerContext& context, TimePoint now) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  // No deadline reads as one that is centuries away.
  if (left > std::chrono::hours(24 * 365)) {
    return std::nullopt;
  }
  return now + std::chrono::duration_cast<nanoseconds>(left);
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceServiceImpl::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  auto model = coordinator_->models()->Get(request->model());
  auto resolved = model.ok() ? ResolveRequest(*request, **model, NewContext())
                             : absl::StatusOr<ResolvedRequest>(model.status());
  if (!resolved.ok()) {
    auto* refused = new GenerateCall(context, options_.max_unread_bytes, [] {});
    refused->Close(resolved.status());
    return refused;
  }
  resolved->session.deadline = DeadlineOf(*context, coordinator_->Now());
  const std::string key = resolved->session.key;
  // So that a late cancel of this call does not end another one of the same id.
  auto live = std::make_shared<bool>(false);
  auto* call =
      new GenerateCall(context, options_.max_unread_bytes, [coordinator = coordinator_, key, live] {
        coordinator->PostToLoop([coordinator, key, live] {
          if (*live) {
            coordinator->CancelRequest(key, absl::OkStatus());
          }
        });
      });
  auto sink = std::make_shared<GenerateSink>(call, live, *model, *resolved);
  auto shared = std::make_shared<ResolvedRequest>(*std::move(resolved));
  const absl::Status taken =
      coordinator_->WithEngine(request->model(), [coordinator = coordinator_, call, sink, shared,
                                                  key, live](const Coordinator::Serving& serving) {
        absl::Status status = serving.problem;
        if (status.ok()) status = coordinator->ClaimKey(key, shared->replace);
        if (status.ok()) {
          sink->SetServing(serving.numerics_class, serving.plan_epoch);
          *live = true;
          status = serving.engine->Submit(std::move(shared->session), sink, coordinator->Now());
        }
        if (!status.ok()) {
          *live = false;
          call->Close(status);
        }
      });
  if (!taken.ok()) {
    call->Close(taken);
  }
  return call;
}

absl::Status InferenceServiceImpl::DoTokenize(const v1::TokenizeRequest& request,
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

absl::Status InferenceServiceImpl::DoDetokenize(const v1::DetokenizeRequest& request,
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

grpc::ServerUnaryReactor* InferenceServiceImpl::Tokenize(grpc::CallbackServerContext* context,
                                                         const v1::TokenizeRequest* request,
                                                         v1::TokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(DoTokenize(*request, response)));
  return reactor;
}

grpc::ServerUnaryReactor* InferenceServiceImpl::Detokenize(grpc::CallbackServerContext* context,
                                                           const v1::DetokenizeRequest* request,
                                                           v1::DetokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(DoDetokenize(*request, response)));
  return reactor;
}

}  // namespace strata
