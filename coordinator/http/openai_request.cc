#include "coordinator/http/openai_request.h"

#include <utility>

#include "common/limits.h"
#include "common/status.h"
#include "coordinator/http/chat_messages.h"
#include "coordinator/http/constraint_fields.h"
#include "coordinator/http/json_body.h"
#include "coordinator/http/sampling_fields.h"

namespace strata {
namespace {

constexpr uint32_t kCompletionTokens = 16;
constexpr uint32_t kChatTokens = 512;
// Of an answer; a longer one fits no context.
constexpr int64_t kMostTokens = kMaxContextTokens;

// What would change the answer, or whom its prefix is shared with, and is not there yet.
void RefuseUnsupported(Fields* fields) {
  for (const char* name : {"functions",
                           "adapter_id",
                           "adapter",
                           "lora_path",
                           "schema",
                           "suffix",
                           "use_beam_search",
                           "stop_token_ids",
                           "bad_words",
                           "allowed_token_ids",
                           "truncate_prompt_tokens",
                           "include_stop_str_in_output",
                           "prompt_logprobs",
                           "audio",
                           "chat_template",
                           "documents",
                           "logits_processors",
                           "return_token_ids",
                           "return_tokens_as_token_ids",
                           "input_embeds",
                           "prompt_embeds",
                           "cache_salt"}) {
    fields->Refuse(name);
  }
  fields->Refuse("function_call", "none");
  fields->Refuse("modalities", Json::array({"text"}));
  fields->Refuse("length_penalty", 1);
  fields->Refuse("verbosity", "medium");
  if (fields->Find("web_search_options") != nullptr) {
    // An empty object asks for a search, too.
    fields->Fail(NotSupported("web_search_options"));
  }
  if (!fields->BoolOr("skip_special_tokens", true)) {
    fields->Fail(NotSupported("skip_special_tokens", "special tokens are never shown"));
  }
}

void ReadStreaming(Fields* fields, OpenAiRequest* out) {
  out->stream = fields->BoolOr("stream", false);
  if (const Json* options = fields->Object("stream_options")) {
    if (!out->stream) {
      fields->Fail(BadField("stream_options", "left out without stream"));
      return;
    }
    Fields inner(*options, "stream_options.");
    out->include_usage = inner.BoolOr("include_usage", false);
    out->continuous_usage = inner.BoolOr("continuous_usage_stats", false);
    fields->Fail(inner.status());
  }
}

void ReadChoices(Fields* fields, OpenAiRequest* out) {
  out->n = static_cast<uint32_t>(fields->Int("n", 1, kMaxChoices).value_or(1));
  out->best_of = out->n;
  if (!out->chat) {
    out->best_of = static_cast<uint32_t>(fields->Int("best_of", 1, kMaxChoices).value_or(out->n));
  }
  if (out->best_of < out->n) {
    fields->Fail(BadField("best_of", "at least n"));
  }
  if (out->best_of > out->n && out->stream) {
    fields->Fail(BadField("best_of", "no more than n in a stream"));
  }
  if (uint64_t{out->best_of} * out->prompts.size() > kMaxChoices) {
    fields->Fail(
        BadField(out->chat ? "n" : "best_of",
                 "such that prompts times best_of is at most " + std::to_string(kMaxChoices)));
  }
}

// What all prompts share, into each of them.
void Share(const v1::GenerateRequest& common, const OpenAiRequest& out,
           std::vector<v1::GenerateRequest>* prompts) {
  for (v1::GenerateRequest& prompt : *prompts) {
    prompt.MergeFrom(common);
    // best_of ranks by logprobs.
    if (out.logprobs || out.best_of > out.n) prompt.set_logprobs(out.top_logprobs);
    if (out.echo && out.logprobs) prompt.set_prompt_logprobs(out.top_logprobs);
  }
}

void AddPrompt(const Json& prompt, Fields* fields, std::vector<v1::GenerateRequest>* out) {
  v1::GenerateRequest& request = out->emplace_back();
  if (prompt.is_string()) {
    request.set_text(prompt.get<std::string>());
  } else if (prompt.is_array() && !prompt.empty()) {
    ReadTokenIds(prompt, "prompt", fields, request.mutable_tokens());
  } else {
    fields->Fail(BadField("prompt", "a string, an array of token ids, or an array of those"));
  }
}

void ReadPrompts(Fields* fields, std::vector<v1::GenerateRequest>* out) {
  const Json* prompt = fields->Find("prompt");
  if (prompt == nullptr) {
    fields->Fail(BadField("prompt", "given"));
    return;
  }
  const bool list = prompt->is_array() && !prompt->empty() &&
                    (prompt->front().is_string() || prompt->front().is_array());
  if (!list) {
    AddPrompt(*prompt, fields, out);
    return;
  }
  if (prompt->size() > kMaxChoices) {
    fields->Fail(BadField("prompt", "at most " + std::to_string(kMaxChoices) + " prompts"));
    return;
  }
  for (const Json& one : *prompt) {
    AddPrompt(one, fields, out);
  }
}

// Of conversations alone.
void RefuseChats(Fields* fields) {
  for (const char* name : {"tools", "chat_template_kwargs", "continue_final_message",
                           "reasoning_effort", "max_thinking_tokens", "thinking_token_budget",
                           "thinking_budget", "reasoning", "thinking"}) {
    fields->Refuse(name);
  }
  fields->Refuse("tool_choice", "none");
}

// "": the one that is loaded.
absl::StatusOr<std::string> ModelOf(Fields* fields) {
  const auto model = fields->Text("model");
  RETURN_IF_ERROR(fields->status());
  return model.value_or("");
}

// What an answer is held to says where it ends.
void LeaveOutStops(const OpenAiRequest& request, v1::GenerateRequest* common) {
  const std::string choice =
      request.prompts.empty() ? "" : request.prompts.front().chat().tool_choice();
  if (common->has_constraint() || choice == "required" || choice == "tool") {
    common->clear_stop();
  }
}

OrderedBody ChatBody(std::string_view body) {
  std::vector<std::string> members = MessageMembers();
  members.insert(members.end(), ConstraintMembers().begin(), ConstraintMembers().end());
  return {body, std::move(members)};
}

}  // namespace

absl::StatusOr<OpenAiRequest> ParseCompletion(std::string_view body) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  Fields fields(json);
  OrderedBody ordered(body, ConstraintMembers());
  OpenAiRequest out;
  ASSIGN_OR_RETURN(out.model, ModelOf(&fields));
  RefuseUnsupported(&fields);
  RefuseChats(&fields);
  ReadPrompts(&fields, &out.prompts);
  ReadStreaming(&fields, &out);
  ReadChoices(&fields, &out);
  out.echo = fields.BoolOr("echo", false);
  out.add_special_tokens = fields.BoolOr("add_special_tokens", true);
  if (const auto logprobs = fields.Int("logprobs", 0, kMaxTopLogprobs)) {
    out.logprobs = true;
    out.top_logprobs = static_cast<uint32_t>(*logprobs);
  }
  v1::GenerateRequest common;
  common.set_model(out.model);
  ReadSampling(&fields, &common);
  ReadConstraint(&fields, &ordered, &common);
  LeaveOutStops(out, &common);
  out.negative_seed = HasNegativeSeed(fields);
  if (const auto most = fields.Int("max_tokens", 0, kMostTokens)) {
    out.no_answer = *most == 0;
    common.set_max_tokens(out.no_answer ? 1 : static_cast<uint32_t>(*most));
  }
  out.default_max_tokens = kCompletionTokens;
  RETURN_IF_ERROR(fields.status());
  Share(common, out, &out.prompts);
  return out;
}

absl::StatusOr<OpenAiRequest> ParseChatCompletion(std::string_view body) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  Fields fields(json);
  OrderedBody ordered = ChatBody(body);
  OpenAiRequest out;
  out.chat = true;
  ASSIGN_OR_RETURN(out.model, ModelOf(&fields));
  RefuseUnsupported(&fields);
  fields.Refuse("echo");
  fields.Refuse("best_of", 1);
  if (fields.BoolOr("add_special_tokens", false)) {
    fields.Fail(NotSupported("add_special_tokens", "the chat template writes them"));
  }
  ReadMessages(&fields, &ordered, out.prompts.emplace_back().mutable_chat());
  ReadStreaming(&fields, &out);
  ReadChoices(&fields, &out);
  out.logprobs = fields.BoolOr("logprobs", false);
  if (const auto top = fields.Int("top_logprobs", 0, kMaxTopLogprobs)) {
    if (*top > 0 && !out.logprobs) {
      fields.Fail(BadField("top_logprobs", "left out without logprobs"));
    }
    out.top_logprobs = static_cast<uint32_t>(*top);
  }
  v1::GenerateRequest common;
  common.set_model(out.model);
  ReadSampling(&fields, &common);
  ReadConstraint(&fields, &ordered, &common);
  LeaveOutStops(out, &common);
  out.negative_seed = HasNegativeSeed(fields);
  const auto newer = fields.Int("max_completion_tokens", 1, kMostTokens);
  const auto older = fields.Int("max_tokens", 1, kMostTokens);
  if (newer.has_value() || older.has_value()) {
    common.set_max_tokens(static_cast<uint32_t>(newer.has_value() ? *newer : *older));
  }
  out.default_max_tokens = kChatTokens;
  RETURN_IF_ERROR(fields.status());
  Share(common, out, &out.prompts);
  return out;
}

}  // namespace strata
