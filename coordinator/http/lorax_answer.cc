#include "coordinator/http/lorax_answer.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "coordinator/http/http_errors.h"
#include "coordinator/http/json_body.h"
#include "coordinator/http/token_text.h"

namespace strata {
namespace {

std::string Event(const OrderedJson& json) { return "data:" + Dump(json) + "\n\n"; }

std::string Milliseconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f", ms);
  return text;
}

class LoraxAnswer : public HttpAnswer {
 public:
  LoraxAnswer(const LoraxRequest& request, LoraxContext context)
      : details_(request.details),
        prefill_wanted_(request.prefill),
        alternatives_(request.alternatives),
        stops_(request.request.stop_size() > 0),
        ignores_eos_(request.request.ignore_eos()),
        context_(std::move(context)),
        texts_(context_.tokenizer.get()) {
    if (request.full_text) text_ = request.request.text();
  }

  bool stream() const override { return context_.stream; }
  std::string OnMessage(size_t choice, const v1::GenerateResponse& message) override;
  std::string EndOfStream() override { return ""; }
  HttpResponse Whole() override;
  HttpResponse Refusal(const absl::Status& status) const override {
    return ErrorAnswer(status, ErrorShape::kLorax);
  }
  std::string StreamError(const absl::Status& status) const override {
    return Event(LoraxError(status));
  }

 private:
  bool IsStopId(uint32_t id) const {
    return !ignores_eos_ && std::find(context_.stop_ids.begin(), context_.stop_ids.end(), id) !=
                                context_.stop_ids.end();
  }
  // {"id", "text", "logprob", "special"}
  OrderedJson Token(const v1::TokenLogprob& token);
  void AddPrefill(const v1::GenerateResponse& message);
  // Whether nothing can follow the token: its event waits for the end, which has the whole text.
  // Where there are stop strings any token may be the last.
  bool MayBeLast(uint32_t id) const {
    return stops_ || count_ == started_.max_tokens() || IsStopId(id);
  }
  std::string TakeHeld();
  std::string FinishReason() const;
  OrderedJson Details() const;

  const bool details_;
  const bool prefill_wanted_;
  const uint32_t alternatives_;
  const bool stops_;
  const bool ignores_eos_;
  const LoraxContext context_;
  TokenTexts texts_;
  std::string text_;
  v1::Started started_;
  v1::Finish finish_;
  uint32_t count_ = 0;    // Tokens so far.
  uint32_t last_id_ = 0;  // The newest.
  OrderedJson prefill_ = OrderedJson::array();
  OrderedJson tokens_ = OrderedJson::array();  // Not of a stream.
  OrderedJson held_;                           // Of a stream: a token without its event.
};

OrderedJson LoraxAnswer::Token(const v1::TokenLogprob& token) {
  OrderedJson json;
  const uint32_t id = token.token_id();
  json["id"] = id;
  json["text"] = texts_.Text(id);
  json["logprob"] = ShortestDouble(token.logprob());
  json["special"] = context_.tokenizer.get() != nullptr &&
                    context_.tokenizer->Decode(std::vector<uint32_t>{id}, true).empty();
  if (alternatives_ > 0) {
    json["alternative_tokens"] = OrderedJson::array();
    for (const auto& top : token.top()) {
      json["alternative_tokens"].push_back({{"id", top.token_id()},
                                            {"text", texts_.Text(top.token_id())},
                                            {"logprob", ShortestDouble(top.logprob())}});
    }
  }
  texts_.Advance(id);
  return json;
}

void LoraxAnswer::AddPrefill(const v1::GenerateResponse& message) {
  if (!prefill_wanted_) {
    return;
  }
  const auto add = [&](uint32_t id, const OrderedJson& logprob) {
    prefill_.push_back({{"id", id}, {"text", texts_.Text(id)}, {"logprob", logprob}});
    texts_.Advance(id);
  };
  if (message.has_started() && !context_.prompt_ids.empty()) {
    add(context_.prompt_ids.front(), nullptr);
  }
  for (const v1::TokenLogprob& logprob : message.prompt_logprobs()) {
    add(logprob.token_id(), ShortestDouble(logprob.logprob()));
  }
}

std::string LoraxAnswer::FinishReason() const {
  if (finish_.reason() == "length") {
    return "length";
  }
  return count_ > 0 && IsStopId(last_id_) ? "eos_token" : "stop_sequence";
}

std::string LoraxAnswer::TakeHeld() {
  if (held_.is_null()) {
    return "";
  }
  OrderedJson json;
  json["token"] = std::exchange(held_, nullptr);
  json["generated_text"] = nullptr;
  json["details"] = nullptr;
  return Event(json);
}

OrderedJson LoraxAnswer::Details() const {
  OrderedJson details;
  details["finish_reason"] = FinishReason();
  details["prompt_tokens"] = finish_.prompt_tokens();
  details["generated_tokens"] = finish_.completion_tokens();
  details["seed"] = started_.seed();
  if (!context_.stream) {
    details["prefill"] = prefill_;
    details["tokens"] = tokens_;
  }
  return details;
}

std::string LoraxAnswer::OnMessage(size_t, const v1::GenerateResponse& message) {
  if (message.has_started()) {
    started_ = message.started();
  }
  AddPrefill(message);
  text_ += message.text();
  std::string said;
  for (const v1::TokenLogprob& logprob : message.logprobs()) {
    ++count_;
    last_id_ = logprob.token_id();
    OrderedJson token = Token(logprob);
    if (!context_.stream) {
      tokens_.push_back(std::move(token));
      continue;
    }
    said += TakeHeld();
    held_ = std::move(token);
    if (!MayBeLast(last_id_)) said += TakeHeld();
  }
  if (message.has_finish()) {
    finish_ = message.finish();
    if (context_.stream) {
      OrderedJson json;
      json["token"] = std::exchange(held_, nullptr);
      json["generated_text"] = text_;
      json["details"] = Details();
      said += Event(json);
    }
  }
  return said;
}

HttpResponse LoraxAnswer::Whole() {
  OrderedJson json;
  json["generated_text"] = text_;
  if (details_ || prefill_wanted_) json["details"] = Details();
  HttpResponse response;
  response.body = Dump(context_.in_array ? OrderedJson::array({json}) : json);
  const double inference = finish_.total_ms() - finish_.queue_ms();
  const uint32_t total = finish_.prompt_tokens() + finish_.completion_tokens();
  response.headers = {
      {"x-model-id", context_.model},
      {"x-prompt-tokens", std::to_string(finish_.prompt_tokens())},
      {"x-generated-tokens", std::to_string(finish_.completion_tokens())},
      {"x-total-tokens", std::to_string(total)},
      {"x-queue-time", Milliseconds(finish_.queue_ms())},
      {"x-inference-time", Milliseconds(inference)},
      {"x-time-to-first-token", Milliseconds(finish_.ttft_ms())},
      {"x-total-time", Milliseconds(finish_.total_ms())},
  };
  return response;
}

}  // namespace

std::unique_ptr<HttpAnswer> MakeLoraxAnswer(const LoraxRequest& request, LoraxContext context) {
  return std::make_unique<LoraxAnswer>(request, std::move(context));
}

}  // namespace strata
