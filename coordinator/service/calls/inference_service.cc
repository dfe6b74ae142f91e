#include "coordinator/service/calls/inference_service.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/blocking_call.h"
#include "common/rpc/io_answers.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "coordinator/service/calls/authorization.h"
#include "coordinator/service/process/generation.h"
#include "coordinator/service/request/text_threads.h"

namespace strata {
namespace {

// From here on a reader is behind, or from a quarter of what may wait for it.
constexpr size_t kBehindBytes = size_t{1} << 20;

std::optional<TimePoint> DeadlineOf(const grpc::ServerContext& context, TimePoint now) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  // No deadline reads as one that is centuries away.
  if (left > std::chrono::hours(24 * 365)) {
    return std::nullopt;
  }
  return now + std::chrono::duration_cast<nanoseconds>(left);
}

}  // namespace

// One Generate call, from when the server may take it.
class InferenceServiceImpl::GenerateCall final
    : public IoAnswers<v1::GenerateRequest, v1::GenerateResponse>,
      public GenerationReceiver {
 public:
  GenerateCall(InferenceServiceImpl* service, IoLoop* loop)
      : IoAnswers(loop,
                  {.most_unread_bytes = service->options_.max_unread_bytes,
                   .behind_bytes = std::min(service->options_.max_unread_bytes / 4, kBehindBytes),
                   .timeout = service->options_.send_timeout,
                   .hint = "read answers as they come, or raise --max-unread and "
                           "--grpc-send-timeout of strata-coordinator"}),
        service_(service) {
    Await([&](auto* context, auto* request, auto* writer, void* tag) {
      service_->service_->RequestGenerate(context, request, writer, loop->queue(),
                                          loop->server_queue(), tag);
    });
  }

 private:
  void OnAccepted() override {
    new GenerateCall(service_, loop());
    Coordinator* const coordinator = service_->coordinator_;
    const TimePoint now = coordinator->Now();
    auto caller = service_->Authenticate(context(), "Generate");
    GenerationOptions options{.deadline = DeadlineOf(context(), now)};
    options.times.arrived = now;
    if (caller.ok()) {
      options.use = std::make_shared<KeyUse>(*caller);
    }
    generation_ = std::make_shared<Generation>(coordinator, std::move(options), this);
    if (!caller.ok()) {
      Close(ToGrpc(caller.status()));
      return;
    }
    const absl::Status taken =
        service_->texts_->Run(KeyOf(caller->get()), request().ByteSizeLong(),
                              [this, generation = generation_] { generation->Run(request()); });
    if (!taken.ok()) {
      Close(ToGrpc(taken));
    }
  }

  void OnCancelled() override { generation_->Cancel(); }

  void OnReader() override { generation_->ReaderChanged(); }

  void OnMessage(v1::GenerateResponse message) override { Push(std::move(message)); }
  bool Behind() override { return IoAnswers::Behind(); }
  void OnEnd(const absl::Status& status) override { Close(ToGrpc(status)); }

  InferenceServiceImpl* const service_;
  std::shared_ptr<Generation> generation_;  // Since it was accepted.
};

InferenceServiceImpl::InferenceServiceImpl(Coordinator* coordinator, InferenceOptions options)
    : coordinator_(coordinator),
      options_(options),
      texts_(options.texts != nullptr ? options.texts : NewTextThreads(options.max_waiting_calls)) {
}

absl::StatusOr<std::shared_ptr<Caller>> InferenceServiceImpl::Authenticate(
    const grpc::ServerContext& context, std::string_view call) {
  if (absl::Status may = CheckPeerRole(context, CallFor::kUsers); !may.ok()) {
    if (options_.on_refused) options_.on_refused(context, call, may);
    return may;
  }
  return coordinator_->Authenticate(AuthorizationOf(context));
}

grpc::Service* InferenceServiceImpl::NewService() {
  service_ = std::make_unique<v1::InferenceService::AsyncService>();
  return service_.get();
}

void InferenceServiceImpl::Serve(IoLoop* loop) {
  using Async = v1::InferenceService::AsyncService;
  new GenerateCall(this, loop);
  const BlockingMethods text(
      service_.get(), loop,
      [this](const grpc::ServerContext& call, size_t bytes, std::function<void()> handler) {
        const auto caller = coordinator_->Authenticate(AuthorizationOf(call));
        return texts_->Run(caller.ok() ? KeyOf(caller->get()) : "", bytes, std::move(handler));
      });
  text.Serve(&Async::RequestTokenize, [this](auto* call, const auto* request, auto* response) {
    const absl::Status known = Authenticate(call->grpc(), "Tokenize").status();
    return ToGrpc(known.ok() ? Tokenize(*request, response) : known);
  });
  text.Serve(&Async::RequestDetokenize, [this](auto* call, const auto* request, auto* response) {
    const absl::Status known = Authenticate(call->grpc(), "Detokenize").status();
    return ToGrpc(known.ok() ? Detokenize(*request, response) : known);
  });
}

absl::Status InferenceServiceImpl::Tokenize(const v1::TokenizeRequest& request,
                                            v1::TokenizeResponse* response) {
  ASSIGN_OR_RETURN(const auto model, coordinator_->models()->Get(request.model()));
  std::vector<uint32_t> ids;
  if (request.has_chat()) {
    ASSIGN_OR_RETURN(std::string prompt, model->RenderChat(request.chat(), std::time(nullptr)));
    ASSIGN_OR_RETURN(ids, model->EncodeAny(prompt, false));
    response->set_prompt(std::move(prompt));
  } else {
    ASSIGN_OR_RETURN(ids, model->EncodeAny(request.text(), request.add_special_tokens()));
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
