// What the fake coordinator answers to Generate, Tokenize and Detokenize.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/rpc/blocking_call.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/io_loop.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/inference.grpc.pb.h"
#include "tests/sdk/fake_services.h"

namespace strata::testing {
namespace {

constexpr uint64_t kDrawnSeed = 77;

class FakeInference : public IoService {
 public:
  explicit FakeInference(FakeState* state) : state_(*state) {}

  grpc::Service* NewService() override {
    service_ = std::make_unique<Async>();
    return service_.get();
  }
  void Serve(IoLoop* loop) override {
    const BlockingMethods calls(service_.get(), loop, &threads_);
    calls.Serve(&Async::RequestGenerate, std::bind_front(&FakeInference::Generate, this));
    calls.Serve(&Async::RequestTokenize, std::bind_front(&FakeInference::Tokenize, this));
    calls.Serve(&Async::RequestDetokenize, std::bind_front(&FakeInference::Detokenize, this));
  }

 private:
  using Async = v1::InferenceService::AsyncService;

  grpc::Status Generate(CallContext* context, const v1::GenerateRequest* request,
                        CallWriter<v1::GenerateResponse>* writer) {
    Mishap mishap;
    int pace_ms = 0;
    {
      MutexLock lock(&state_.mutex);
      state_.requests.push_back(*request);
      const auto key = context->grpc().client_metadata().find("authorization");
      if (key != context->grpc().client_metadata().end()) {
        state_.authorization = std::string(key->second.data(), key->second.size());
      }
      if (!state_.mishaps.empty()) {
        mishap = state_.mishaps.front();
        state_.mishaps.pop_front();
      }
      pace_ms = state_.pace_ms;
    }
    if (request->model() == "missing") {
      return NoSuchModel(request->model());
    }
    if (mishap.kind == Mishap::kFail) {
      return ToGrpc(Error(absl::StatusCode::kResourceExhausted, "KV_NEVER_FITS",
                          "prompt + max_tokens is 9000 tokens")
                        .Node("a")
                        .Limit("kv_tokens=8192")
                        .Hint("lower --max-tokens"));
    }
    while (Held() && !context->IsCancelled()) {
      SleepMs(1);
    }
    return Answer(context, *request, mishap, pace_ms, writer);
  }

  grpc::Status Tokenize(CallContext*, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) {
    if (request->model() == "missing") {
      return NoSuchModel(request->model());
    }
    if (request->has_chat()) {
      for (const auto& message : request->chat().messages()) {
        response->set_prompt(response->prompt() + message.role() + ":" + message.content() + "\n");
      }
    }
    const std::string& text = request->has_chat() ? response->prompt() : request->text();
    if (request->add_special_tokens()) {
      response->add_ids(1000);
    }
    for (const char c : text) {
      response->add_ids(static_cast<unsigned char>(c));
    }
    return grpc::Status::OK;
  }

  grpc::Status Detokenize(CallContext*, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) {
    for (const uint32_t id : request->ids()) {
      if (id < 256) {
        response->mutable_text()->push_back(static_cast<char>(id));
      } else if (!request->skip_special_tokens()) {
        *response->mutable_text() += "<" + std::to_string(id) + ">";
      }
    }
    return grpc::Status::OK;
  }

  static uint32_t PromptTokens(const v1::GenerateRequest& request) {
    if (request.has_tokens()) return static_cast<uint32_t>(request.tokens().ids_size());
    if (request.has_chat()) return static_cast<uint32_t>(request.chat().messages_size()) * 10;
    return static_cast<uint32_t>(request.text().size());
  }

  static void AddLogits(uint32_t first, uint32_t rows, v1::GenerateResponse* response) {
    response->mutable_logits()->set_rows(rows);
    response->mutable_logits()->set_columns(kFakeVocab);
    for (uint32_t row = first; row < first + rows; ++row) {
      for (uint32_t column = 0; column < kFakeVocab; ++column) {
        const float value = FakeLogit(row, column);
        response->mutable_logits()->mutable_values()->append(reinterpret_cast<const char*>(&value),
                                                             sizeof(value));
      }
    }
  }

  static v1::GenerateResponse First(const v1::GenerateRequest& request, uint64_t seed,
                                    uint32_t max_tokens, const Mishap& mishap) {
    v1::GenerateResponse first;
    first.set_request_id(request.request_id());
    v1::Started* started = first.mutable_started();
    started->set_seed(seed);
    started->set_numerics_class(mishap.kind == Mishap::kOtherClass ? "other-1" : kFakeClass);
    started->set_plan_epoch(3);
    started->set_prompt_tokens(PromptTokens(request));
    started->set_max_tokens(max_tokens);
    if (request.has_prompt_logprobs()) {
      for (uint32_t i = 1; i < PromptTokens(request); ++i) {
        v1::TokenLogprob* logprob = first.add_prompt_logprobs();
        logprob->set_token_id(i);
        logprob->set_logprob(-0.25f * static_cast<float>(i));
      }
    }
    if (request.return_logits()) {
      AddLogits(0, PromptTokens(request), &first);
    }
    return first;
  }

  static v1::GenerateResponse Token(const v1::GenerateRequest& request, uint64_t seed, uint32_t i) {
    v1::GenerateResponse response;
    response.add_token_ids(FakeToken(seed, i));
    if (request.model() != "textless") {
      response.set_text(FakeText(seed, i));
    }
    if (request.has_logprobs()) {
      v1::TokenLogprob* logprob = response.add_logprobs();
      logprob->set_token_id(FakeToken(seed, i));
      logprob->set_logprob(FakeLogprob(seed, i));
      for (uint32_t k = 0; k < request.logprobs(); ++k) {
        logprob->add_top()->set_token_id(k);
        logprob->mutable_top(static_cast<int>(k))
            ->set_logprob(-1.0f - 0.1f * static_cast<float>(k));
      }
    }
    if (request.return_logits() && i > 0) {
      AddLogits(PromptTokens(request) + i - 1, 1, &response);
    }
    return response;
  }

  bool Held() const {
    MutexLock lock(&state_.mutex);
    return state_.requests.size() < state_.hold_until;
  }

  grpc::Status Answer(CallContext* context, const v1::GenerateRequest& request,
                      const Mishap& mishap, int pace_ms, CallWriter<v1::GenerateResponse>* writer) {
    const uint64_t seed = request.sampling().has_seed() ? request.sampling().seed() : kDrawnSeed;
    const uint32_t max_tokens = request.max_tokens() == 0 ? 8 : request.max_tokens();
    writer->Write(First(request, seed, max_tokens, mishap));
    for (uint32_t i = 0; i < max_tokens; ++i) {
      if (i == mishap.after && mishap.kind != Mishap::kOtherToken &&
          mishap.kind != Mishap::kNewClass) {
        if (const std::optional<grpc::Status> end = Strike(context, mishap, writer)) {
          return *end;
        }
      }
      const bool other = mishap.kind == Mishap::kOtherToken && i >= mishap.after;
      v1::GenerateResponse token = Token(request, other ? seed + 1 : seed, i);
      if (mishap.kind == Mishap::kNewClass && i == mishap.after) {
        token.set_numerics_class("other-1");
      }
      if (!writer->Write(std::move(token)) || context->IsCancelled()) {
        state_.SawCancel();
        return grpc::Status::CANCELLED;
      }
      Pace(*context, pace_ms);
    }
    return End(max_tokens, PromptTokens(request), "length", writer);
  }

  static grpc::Status End(uint32_t tokens, uint32_t prompt_tokens, const std::string& reason,
                          CallWriter<v1::GenerateResponse>* writer) {
    v1::GenerateResponse last;
    last.mutable_finish()->set_reason(reason);
    last.mutable_finish()->set_prompt_tokens(prompt_tokens);
    last.mutable_finish()->set_completion_tokens(tokens);
    last.mutable_finish()->set_ttft_ms(2.5);
    last.mutable_finish()->set_total_ms(10);
    writer->Write(last);
    return grpc::Status::OK;
  }

  // The end that the mishap brings, if it brings one.
  std::optional<grpc::Status> Strike(CallContext* context, const Mishap& mishap,
                                     CallWriter<v1::GenerateResponse>* writer) {
    switch (mishap.kind) {
      case Mishap::kBreak:
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
      case Mishap::kNotYet:
        return ToGrpc(Error(absl::StatusCode::kUnavailable, "MODEL_NOT_READY", "not yet"));
      case Mishap::kHang:
        while (!context->IsCancelled()) {
          SleepMs(2);
        }
        state_.SawCancel();
        return grpc::Status::CANCELLED;
      case Mishap::kCancelled:
        return End(mishap.after, 1, "cancelled", writer);
      case Mishap::kNoFinish:
        return grpc::Status::OK;
      default:
        return std::nullopt;
    }
  }

  FakeState& state_;
  std::unique_ptr<Async> service_;
  CallThreads threads_{{.threads = 64}};
};

}  // namespace

std::unique_ptr<IoService> MakeFakeInference(FakeState* state) {
  return std::make_unique<FakeInference>(state);
}

}  // namespace strata::testing
