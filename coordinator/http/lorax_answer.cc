#include "coordinator/http/lorax_answer.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <utility>

#include "coordinator/http/http_errors.h"
#include "coordinator/http/json_body.h"
#include "coordinator/http/sampling_fields.h"
#include "coordinator/http/token_text.h"

namespace strata {
namespace {

std::string LoraxEvent(const OrderedJson& json) { return "data:" + Dump(json) + "\n\n"; }

std::string Milliseconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f", ms);
  return text;
}

// One of the answers of which the best is shown.
struct LoraxChoice {
  LoraxChoice(const Tokenizer* tokenizer, std::span<const uint32_t> before)
      : texts(tokenizer, before) {}

  TokenTexts texts;
  std::string text;
  v1::Finish finish;
  uint32_t count = 0;    // Tokens so far.
  uint32_t last_id = 0;  // The newest.
  double logprob_sum = 0;
  OrderedJson tokens = OrderedJson::array();  // Not of a stream.

  double MeanLogprob() const { return count == 0 ? 0 : logprob_sum / count; }
};

class LoraxAnswer : public HttpAnswer {
 public:
  LoraxAnswer(const LoraxRequest& request, LoraxContext context)
      : details_(request.details),
        prefill_wanted_(request.prefill),
        alternatives_(request.alternatives),
        stops_(request.request.stop_size() > 0),
        held_to_(request.request.has_constraint()),
        ignores_eos_(request.request.ignore_eos()),
        negative_seed_(request.negative_seed),
        context_(std::move(context)),
        prefill_texts_(context_.tokenizer.get()) {
    const std::vector<uint32_t> before = IdsBehindPrompt(context_.tokenizer.get());
    for (uint32_t i = 0; i < request.best_of; ++i) {
      choices_.emplace_back(context_.tokenizer.get(), before);
    }
    if (request.full_text) shown_prompt_ = request.inputs;
  }

  bool stream() const override { return context_.stream; }
  std::string OnMessage(size_t index, const v1::GenerateResponse& message) override;
  std::string EndOfStream() override { return ""; }
  HttpResponse Whole() override;
  HttpResponse Refusal(const absl::Status& status) const override {
    return ErrorAnswer(status, ErrorShape::kLorax);
  }
  std::string StreamError(const absl::Status& status) const override {
    return LoraxEvent(LoraxError(status));
  }

 private:
  bool IsStopId(uint32_t id) const {
    return !ignores_eos_ && std::find(context_.stop_ids.begin(), context_.stop_ids.end(), id) !=
                                context_.stop_ids.end();
  }
  // {"id", "text", "logprob", "special", "skipped"}
  OrderedJson Token(const v1::TokenLogprob& token, TokenTexts* texts) const;
  void AddPrefill(const v1::GenerateResponse& message);
  // Whether nothing can follow the newest token: its event waits for the end, which has the whole
  // text. Any token may be the last where there are stop strings, or the answer is held to
  // something, which may end it without an end token.
  bool MayBeLast(const LoraxChoice& choice) const {
    return stops_ || held_to_ || choice.count == started_.max_tokens() || IsStopId(choice.last_id);
  }
  std::string TakeHeld();
  std::string FinishReason(const LoraxChoice& choice) const;
  OrderedJson Details(const LoraxChoice& choice) const;
  // An entry of "best_of_sequences".
  OrderedJson Sequence(const LoraxChoice& choice) const;

  const bool details_;
  const bool prefill_wanted_;
  const uint32_t alternatives_;
  const bool stops_;
  const bool held_to_;  // A constraint.
  const bool ignores_eos_;
  const bool negative_seed_;
  const LoraxContext context_;
  std::string shown_prompt_;  // Before each answer.
  std::deque<LoraxChoice> choices_;
  v1::Started started_;  // Of any choice: all have the same seed.
  TokenTexts prefill_texts_;
  OrderedJson prefill_ = OrderedJson::array();  // Of the first choice; the prompt is the same.
  OrderedJson held_;                            // Of a stream: a token without its event.
};

OrderedJson LoraxAnswer::Token(const v1::TokenLogprob& token, TokenTexts* texts) const {
  OrderedJson json;
  const uint32_t id = token.token_id();
  json["id"] = id;
  json["text"] = texts->Text(id);
  json["logprob"] = ShortestDouble(token.logprob());
  json["special"] = context_.tokenizer.get() != nullptr &&
                    context_.tokenizer->Decode(std::vector<uint32_t>{id}, true).empty();
  json["skipped"] = false;  // By speculation; newer clients want to be told.
  if (alternatives_ > 0) {
    json["alternative_tokens"] = OrderedJson::array();
    for (const auto& top : token.top()) {
      json["alternative_tokens"].push_back({{"id", top.token_id()},
                                            {"text", texts->Text(top.token_id())},
                                            {"logprob", ShortestDouble(top.logprob())}});
    }
  }
  texts->Advance(id);
  return json;
}

void LoraxAnswer::AddPrefill(const v1::GenerateResponse& message) {
  if (!prefill_wanted_) {
    return;
  }
  const auto add = [&](uint32_t id, const OrderedJson& logprob) {
    prefill_.push_back({{"id", id}, {"text", prefill_texts_.Text(id)}, {"logprob", logprob}});
    prefill_texts_.Advance(id);
  };
  if (message.has_started() && !context_.prompt_ids.empty()) {
    add(context_.prompt_ids.front(), nullptr);
  }
  for (const v1::TokenLogprob& logprob : message.prompt_logprobs()) {
    add(logprob.token_id(), ShortestDouble(logprob.logprob()));
  }
}

std::string LoraxAnswer::FinishReason(const LoraxChoice& choice) const {
  if (choice.finish.reason() == "length") {
    return "length";
  }
  const bool ended = held_to_ || (choice.count > 0 && IsStopId(choice.last_id));
  return ended ? "eos_token" : "stop_sequence";
}

std::string LoraxAnswer::TakeHeld() {
  if (held_.is_null()) {
    return "";
  }
  OrderedJson json;
  json["token"] = std::exchange(held_, nullptr);
  json["generated_text"] = nullptr;
  json["details"] = nullptr;
  return LoraxEvent(json);
}

OrderedJson LoraxAnswer::Details(const LoraxChoice& choice) const {
  OrderedJson details;
  details["finish_reason"] = FinishReason(choice);
  details["prompt_tokens"] = choice.finish.prompt_tokens();
  details["generated_tokens"] = choice.finish.completion_tokens();
  details["skipped_tokens"] = 0;
  details["seed"] = SeedJson(started_.seed(), negative_seed_);
  if (!context_.stream) {
    details["prefill"] = prefill_;
    details["tokens"] = choice.tokens;
  }
  return details;
}

OrderedJson LoraxAnswer::Sequence(const LoraxChoice& choice) const {
  OrderedJson sequence = {{"generated_text", choice.text}};
  sequence.update(Details(choice));
  return sequence;
}

std::string LoraxAnswer::OnMessage(size_t index, const v1::GenerateResponse& message) {
  LoraxChoice& choice = choices_[index];
  if (message.has_started()) {
    started_ = message.started();
    choice.text = shown_prompt_;
    for (const uint32_t id : context_.prompt_ids) choice.texts.Advance(id);
  }
  if (index == 0) AddPrefill(message);
  choice.text += message.text();
  std::string said;
  for (const v1::TokenLogprob& logprob : message.logprobs()) {
    ++choice.count;
    choice.last_id = logprob.token_id();
    choice.logprob_sum += logprob.logprob();
    OrderedJson token = Token(logprob, &choice.texts);
    if (!context_.stream) {
      choice.tokens.push_back(std::move(token));
      continue;
    }
    said += TakeHeld();
    held_ = std::move(token);
    if (!MayBeLast(choice)) said += TakeHeld();
  }
  if (message.has_finish()) {
    choice.finish = message.finish();
    if (context_.stream) {
      OrderedJson json;
      json["token"] = std::exchange(held_, nullptr);
      json["generated_text"] = choice.text;
      json["details"] = Details(choice);
      said += LoraxEvent(json);
    }
  }
  return said;
}

HttpResponse LoraxAnswer::Whole() {
  // The first of those that are as likely.
  const auto best = std::max_element(
      choices_.begin(), choices_.end(),
      [](const LoraxChoice& a, const LoraxChoice& b) { return a.MeanLogprob() < b.MeanLogprob(); });
  OrderedJson json;
  json["generated_text"] = best->text;
  if (details_ || prefill_wanted_) {
    json["details"] = Details(*best);
    if (choices_.size() > 1) json["details"]["best_of_sequences"] = OrderedJson::array();
    for (const LoraxChoice& choice : choices_) {
      if (&choice != &*best) {
        json["details"]["best_of_sequences"].push_back(Sequence(choice));
      }
    }
  }
  HttpResponse response;
  response.body = Dump(context_.in_array ? OrderedJson::array({json}) : json);
  const v1::Finish& finish = best->finish;
  const uint32_t total = finish.prompt_tokens() + finish.completion_tokens();
  response.headers = {
      {"x-model-id", context_.model},
      {"x-prompt-tokens", std::to_string(finish.prompt_tokens())},
      {"x-generated-tokens", std::to_string(finish.completion_tokens())},
      {"x-total-tokens", std::to_string(total)},
      {"x-queue-time", Milliseconds(finish.queue_ms())},
      {"x-inference-time", Milliseconds(finish.total_ms() - finish.queue_ms())},
      {"x-time-to-first-token", Milliseconds(finish.ttft_ms())},
      {"x-total-time", Milliseconds(finish.total_ms())},
  };
  if (context_.elapsed_ms != nullptr) {
    const double before = context_.elapsed_ms() - finish.total_ms();
    response.headers.emplace_back("x-validation-time", Milliseconds(std::max(0.0, before)));
  }
  return response;
}

}  // namespace

std::unique_ptr<HttpAnswer> MakeLoraxAnswer(const LoraxRequest& request, LoraxContext context) {
  return std::make_unique<LoraxAnswer>(request, std::move(context));
}

}  // namespace strata
