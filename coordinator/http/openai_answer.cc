#include "coordinator/http/openai_answer.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "coordinator/http/http_errors.h"
#include "coordinator/http/openai_logprobs.h"
#include "coordinator/http/sampling_fields.h"
#include "coordinator/http/token_text.h"

namespace strata {
namespace {

std::string OpenAiEvent(const OrderedJson& json) { return "data: " + Dump(json) + "\n\n"; }

struct OpenAiChoice {
  OpenAiChoice(const Tokenizer* tokenizer, std::span<const uint32_t> before)
      : texts(tokenizer, before), completion(tokenizer, &texts) {}
  OpenAiChoice(const OpenAiChoice&) = delete;
  OpenAiChoice& operator=(const OpenAiChoice&) = delete;

  TokenTexts texts;
  // What was not taken yet: of a stream since its last chunk, else all of it.
  std::string text;
  std::string thought;
  std::vector<v1::ToolCallPiece> calls;  // Pieces of a call are one.
  uint64_t generated = 0;                // Tokens.
  uint64_t prompt_tokens = 0;
  CompletionLogprobs completion;
  OrderedJson chat = OrderedJson::array();
  bool named = false;         // A chunk said whose it is.
  bool said = false;          // A chunk had text, a thought or a call.
  std::string finish_reason;  // Since its last message.
  v1::Finish finish;
  double logprob_sum = 0;
  size_t logprobs = 0;

  double MeanLogprob() const {
    return logprobs == 0 ? 0 : logprob_sum / static_cast<double>(logprobs);
  }
};

class OpenAiAnswer : public HttpAnswer {
 public:
  OpenAiAnswer(const OpenAiRequest& request, OpenAiContext context)
      : chat_(request.chat),
        stream_(request.stream),
        include_usage_(request.include_usage),
        continuous_usage_(request.continuous_usage),
        echo_(request.echo),
        no_answer_(request.no_answer),
        logprobs_(request.logprobs),
        top_logprobs_(request.top_logprobs),
        negative_seed_(request.negative_seed),
        n_(request.n),
        best_of_(request.best_of),
        model_(request.model),
        context_(std::move(context)) {
    const Tokenizer* const tokenizer = logprobs_ ? context_.tokenizer.get() : nullptr;
    const std::vector<uint32_t> before =
        echo_ ? std::vector<uint32_t>() : IdsBehindPrompt(tokenizer);
    for (size_t i = 0; i < request.prompts.size() * best_of_; ++i) {
      choices_.push_back(std::make_unique<OpenAiChoice>(tokenizer, before));
    }
  }

  bool stream() const override { return stream_; }
  std::string OnMessage(size_t index, const v1::GenerateResponse& message) override;
  std::string EndOfStream() override;
  HttpResponse Whole() override;
  HttpResponse Refusal(const absl::Status& status) const override {
    return ErrorAnswer(status, ErrorShape::kOpenAi);
  }
  std::string StreamError(const absl::Status& status) const override {
    return OpenAiEvent(OpenAiError(status));
  }

 private:
  // What begins every object of the answer.
  OrderedJson Head(const char* whole, const char* chunk) const;
  OrderedJson HeadOf() const {
    return chat_ ? Head("chat.completion", "chat.completion.chunk")
                 : Head("text_completion", "text_completion");
  }
  OrderedJson Usage() const;
  // Of a stream that goes on: what was made so far.
  OrderedJson UsageSoFar() const;
  OrderedJson UsageOf(uint64_t prompt, uint64_t completion, uint64_t cached,
                      uint64_t thoughts) const;
  // What a conversation's choice says that was not taken yet.
  OrderedJson TakeSaid(OpenAiChoice* choice) const;
  // What follows is computed in this numerics class.
  void SayClass(const std::string& name);
  void Start(size_t index, const v1::Started& started);
  // Logprobs that were not taken yet, or null.
  OrderedJson TakeLogprobs(OpenAiChoice* choice) const;
  // One entry of "choices", of all that was not taken yet.
  OrderedJson Take(size_t index, OpenAiChoice* choice) const;
  // An event of it.
  std::string Chunk(size_t index, OpenAiChoice* choice) const;
  // Events of it, each with the pieces of one call at most: clients read no more of a chunk.
  std::string Chunks(size_t index, OpenAiChoice* choice) const;

  const bool chat_;
  const bool stream_;
  const bool include_usage_;
  const bool continuous_usage_;
  const bool echo_;
  const bool no_answer_;
  const bool logprobs_;
  const uint32_t top_logprobs_;
  const bool negative_seed_;
  const uint32_t n_;
  const uint32_t best_of_;
  const std::string model_;
  const OpenAiContext context_;
  std::vector<std::unique_ptr<OpenAiChoice>> choices_;
  v1::Started started_;  // Of any choice: all have the same seed and run on the same plan.
  // The numerics class, and behind " -> " each one in which the model went on.
  std::string numerics_;
  std::string newest_class_;
};

OrderedJson OpenAiAnswer::Head(const char* whole, const char* chunk) const {
  OrderedJson json;
  json["id"] = (chat_ ? "chatcmpl-" : "cmpl-") + context_.request_id;
  json["object"] = stream_ ? chunk : whole;
  json["created"] = context_.unix_seconds;
  json["model"] = model_;
  json["system_fingerprint"] = numerics_;
  return json;
}

OrderedJson OpenAiAnswer::Usage() const {
  uint64_t prompt = 0, completion = 0, cached = 0, thoughts = 0, drafted = 0, accepted = 0;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const v1::Finish& finish = choices_[i]->finish;
    completion += no_answer_ ? 0 : finish.completion_tokens();
    thoughts += finish.reasoning_tokens();
    drafted += finish.drafted_tokens();
    accepted += finish.accepted_tokens();
    if (i % best_of_ == 0) {
      prompt += finish.prompt_tokens();
      cached += finish.cached_tokens();
    }
  }
  OrderedJson usage = UsageOf(prompt, completion, cached, thoughts);
  if (drafted > 0) {
    OrderedJson& details = usage["completion_tokens_details"];
    details["accepted_prediction_tokens"] = accepted;
    details["rejected_prediction_tokens"] = drafted - accepted;
  }
  return usage;
}

OrderedJson OpenAiAnswer::UsageSoFar() const {
  uint64_t prompt = 0, completion = 0;
  for (size_t i = 0; i < choices_.size(); ++i) {
    completion += no_answer_ ? 0 : choices_[i]->generated;
    if (i % best_of_ == 0) prompt += choices_[i]->prompt_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion}};
}

OrderedJson OpenAiAnswer::UsageOf(uint64_t prompt, uint64_t completion, uint64_t cached,
                                  uint64_t thoughts) const {
  OrderedJson usage{{"prompt_tokens", prompt},
                    {"completion_tokens", completion},
                    {"total_tokens", prompt + completion},
                    {"prompt_tokens_details", {{"cached_tokens", cached}}}};
  if (chat_) usage["completion_tokens_details"] = {{"reasoning_tokens", thoughts}};
  return usage;
}

void OpenAiAnswer::SayClass(const std::string& name) {
  if (name.empty() || name == newest_class_) {
    return;
  }
  numerics_ += (numerics_.empty() ? "" : " -> ") + name;
  newest_class_ = name;
}

void OpenAiAnswer::Start(size_t index, const v1::Started& started) {
  started_ = started;
  SayClass(started.numerics_class());
  choices_[index]->prompt_tokens = started.prompt_tokens();
  const size_t prompt = index / best_of_;
  if (!echo_) {
    return;
  }
  OpenAiChoice& choice = *choices_[index];
  choice.text = context_.prompt_texts[prompt];
  if (logprobs_ && !context_.prompt_ids[prompt].empty()) {
    choice.completion.BeginPrompt(choice.text, context_.prompt_ids[prompt].front());
  }
}

OrderedJson OpenAiAnswer::TakeLogprobs(OpenAiChoice* choice) const {
  if (!logprobs_) {
    return nullptr;
  }
  if (!chat_) {
    return stream_ && choice->completion.empty() ? OrderedJson(nullptr) : choice->completion.Take();
  }
  return {{"content", std::exchange(choice->chat, OrderedJson::array())}, {"refusal", nullptr}};
}

OrderedJson OpenAiAnswer::TakeSaid(OpenAiChoice* choice) const {
  OrderedJson said = OrderedJson::object();
  if (!std::exchange(choice->named, true)) said["role"] = "assistant";
  std::string text = std::exchange(choice->text, {});
  std::string thought = std::exchange(choice->thought, {});
  const std::vector<v1::ToolCallPiece> calls = std::exchange(choice->calls, {});
  // Null beside thoughts and calls, so that nobody shows an empty text for them. A chunk that says
  // nothing leaves it out, but where the whole answer is empty.
  const bool beside = !calls.empty() || !thought.empty();
  const bool nothing = text.empty() && !beside;
  const bool empty_answer = !choice->said && !choice->finish_reason.empty();
  if (!stream_ || !nothing || empty_answer) {
    said["content"] = text.empty() && beside ? OrderedJson(nullptr) : OrderedJson(std::move(text));
  }
  choice->said |= !nothing;
  if (!thought.empty()) said["reasoning_content"] = std::move(thought);
  for (const v1::ToolCallPiece& piece : calls) {
    OrderedJson call = OrderedJson::object();
    if (stream_) call["index"] = piece.index();
    OrderedJson function = OrderedJson::object();
    if (!piece.id().empty()) {
      call["id"] = piece.id();
      call["type"] = "function";
      function["name"] = piece.name();
    }
    function["arguments"] = piece.arguments();
    call["function"] = std::move(function);
    said["tool_calls"].push_back(std::move(call));
  }
  return said;
}

OrderedJson OpenAiAnswer::Take(size_t index, OpenAiChoice* choice) const {
  OrderedJson json;
  json["index"] = index;
  if (!chat_) {
    json["text"] = std::exchange(choice->text, {});
  } else {
    json[stream_ ? "delta" : "message"] = TakeSaid(choice);
  }
  json["logprobs"] = TakeLogprobs(choice);
  json["finish_reason"] = nullptr;
  if (!choice->finish_reason.empty()) json["finish_reason"] = choice->finish_reason;
  return json;
}

std::string OpenAiAnswer::Chunk(size_t index, OpenAiChoice* choice) const {
  OrderedJson json = HeadOf();
  const bool last = !choice->finish_reason.empty();
  json["choices"] = OrderedJson::array({Take(index, choice)});
  if (last) json["seed"] = SeedJson(started_.seed(), negative_seed_);
  if (continuous_usage_) {
    json["usage"] = UsageSoFar();
  } else if (include_usage_) {
    json["usage"] = nullptr;
  }
  return OpenAiEvent(json);
}

std::string OpenAiAnswer::Chunks(size_t index, OpenAiChoice* choice) const {
  std::string events;
  std::vector<v1::ToolCallPiece> calls = std::exchange(choice->calls, {});
  const std::string reason = std::exchange(choice->finish_reason, {});
  for (size_t i = 0; i + 1 < calls.size(); ++i) {
    choice->calls.push_back(std::move(calls[i]));
    events += Chunk(index, choice);
  }
  if (!calls.empty()) choice->calls.push_back(std::move(calls.back()));
  choice->finish_reason = reason;
  return events + Chunk(index, choice);
}

std::string OpenAiAnswer::OnMessage(size_t index, const v1::GenerateResponse& message) {
  OpenAiChoice& choice = *choices_[index];
  if (message.has_started()) {
    Start(index, message.started());
  }
  SayClass(message.numerics_class());
  for (const v1::TokenLogprob& logprob : message.prompt_logprobs()) {
    choice.completion.AddOfPrompt(logprob, top_logprobs_);
  }
  if (!no_answer_) {
    choice.text += message.text();
    choice.thought += message.thought();
    choice.generated += static_cast<uint64_t>(message.token_ids_size());
    for (const v1::ToolCallPiece& piece : message.tool_calls()) {
      if (!piece.id().empty() || choice.calls.empty() ||
          choice.calls.back().index() != piece.index()) {
        if (piece.id().empty() && piece.arguments().empty()) continue;  // It only ends.
        choice.calls.push_back(piece);
      } else {
        choice.calls.back().mutable_arguments()->append(piece.arguments());
      }
    }
    for (const v1::TokenLogprob& logprob : message.logprobs()) {
      choice.logprob_sum += logprob.logprob();
      ++choice.logprobs;
      if (!logprobs_) {
        continue;
      }
      if (chat_) {
        choice.chat.push_back(ChatLogprob(logprob, top_logprobs_, &choice.texts));
      } else {
        choice.completion.AddOfAnswer(logprob, top_logprobs_);
      }
    }
  }
  if (message.has_finish()) {
    choice.finish = message.finish();
    choice.finish_reason = no_answer_ ? "length" : message.finish().reason();
  }
  // The prompt is shown with the first token.
  const bool moved = message.token_ids_size() > 0 || message.has_finish();
  const bool something = !choice.text.empty() || !choice.thought.empty() || !choice.calls.empty() ||
                         !choice.completion.empty() || !choice.chat.empty() || message.has_finish();
  if (!stream_ || !moved || !something) {
    return "";
  }
  return Chunks(index, &choice);
}

std::string OpenAiAnswer::EndOfStream() {
  std::string last;
  if (include_usage_) {
    OrderedJson json = HeadOf();
    json["choices"] = OrderedJson::array();
    json["usage"] = Usage();
    last = OpenAiEvent(json);
  }
  return last + "data: [DONE]\n\n";
}

HttpResponse OpenAiAnswer::Whole() {
  OrderedJson json = HeadOf();
  json["choices"] = OrderedJson::array();
  for (size_t first = 0; first < choices_.size(); first += best_of_) {
    std::vector<size_t> order(best_of_);
    std::iota(order.begin(), order.end(), first);
    if (best_of_ > n_) {
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return choices_[a]->MeanLogprob() > choices_[b]->MeanLogprob();
      });
    }
    for (size_t i = 0; i < n_; ++i) {
      json["choices"].push_back(Take(json["choices"].size(), choices_[order[i]].get()));
    }
  }
  json["usage"] = Usage();
  json["seed"] = SeedJson(started_.seed(), negative_seed_);
  HttpResponse response;
  response.body = Dump(json);
  return response;
}

}  // namespace

std::unique_ptr<HttpAnswer> MakeOpenAiAnswer(const OpenAiRequest& request, OpenAiContext context) {
  return std::make_unique<OpenAiAnswer>(request, std::move(context));
}

}  // namespace strata
