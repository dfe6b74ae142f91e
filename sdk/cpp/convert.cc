#include "sdk/cpp/convert.h"

#include <cstdio>
#include <random>

namespace strata::sdk {
namespace {

void SetSampling(const Sampling& sampling, v1::SamplingParams* wire) {
  if (sampling.temperature) wire->set_temperature(*sampling.temperature);
  if (sampling.top_k) wire->set_top_k(*sampling.top_k);
  if (sampling.top_p) wire->set_top_p(*sampling.top_p);
  if (sampling.min_p) wire->set_min_p(*sampling.min_p);
  if (sampling.typical_p) wire->set_typical_p(*sampling.typical_p);
  if (sampling.repetition_penalty) wire->set_repetition_penalty(*sampling.repetition_penalty);
  if (sampling.frequency_penalty) wire->set_frequency_penalty(*sampling.frequency_penalty);
  if (sampling.presence_penalty) wire->set_presence_penalty(*sampling.presence_penalty);
  for (const auto& [id, bias] : sampling.logit_bias) {
    (*wire->mutable_logit_bias())[id] = bias;
  }
  if (sampling.seed) wire->set_seed(*sampling.seed);
}

void SetConstraint(const Constraint& constraint, v1::GenerateRequest* wire) {
  if (const auto* schema = std::get_if<JsonSchema>(&constraint)) {
    wire->mutable_constraint()->set_json_schema(schema->schema);
    wire->mutable_constraint()->set_strict(schema->strict);
  } else if (std::holds_alternative<AnyJsonObject>(constraint)) {
    wire->mutable_constraint()->set_json_object(true);
  } else if (const auto* regex = std::get_if<Regex>(&constraint)) {
    wire->mutable_constraint()->set_regex(regex->pattern);
  } else if (const auto* choices = std::get_if<Choices>(&constraint)) {
    wire->mutable_constraint()->mutable_choices()->mutable_texts()->Add(choices->texts.begin(),
                                                                        choices->texts.end());
  } else if (const auto* ebnf = std::get_if<Ebnf>(&constraint)) {
    wire->mutable_constraint()->set_grammar(ebnf->grammar);
  }
}

}  // namespace

v1::ChatInput ToWire(const std::vector<ChatMessage>& messages) {
  v1::ChatInput wire;
  for (const ChatMessage& message : messages) {
    v1::ChatMessage* m = wire.add_messages();
    m->set_role(message.role);
    m->set_content(message.content);
    for (const ToolCall& call : message.tool_calls) {
      v1::ToolCall* c = m->add_tool_calls();
      c->set_id(call.id);
      c->set_name(call.name);
      c->set_arguments(call.arguments);
    }
    m->set_without_content(message.content.empty() && !message.tool_calls.empty());
    if (!message.tool_call_id.empty()) m->set_tool_call_id(message.tool_call_id);
    if (!message.thought.empty()) m->set_reasoning_content(message.thought);
  }
  return wire;
}

v1::GenerateRequest ToWire(const GenerateRequest& request) {
  v1::GenerateRequest wire;
  wire.set_model(request.model);
  wire.set_request_id(request.request_id);
  if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    wire.set_text(*text);
  } else if (const auto* ids = std::get_if<std::vector<uint32_t>>(&request.prompt)) {
    wire.mutable_tokens()->mutable_ids()->Add(ids->begin(), ids->end());
  } else {
    v1::ChatInput* chat = wire.mutable_chat();
    *chat = ToWire(std::get<std::vector<ChatMessage>>(request.prompt));
    chat->mutable_tools()->Add(request.tools.begin(), request.tools.end());
    chat->set_tool_choice(request.tool_choice);
    chat->set_tool_name(request.tool_name);
    chat->set_one_tool_call(request.one_tool_call);
    if (request.thought_budget_tokens) {
      chat->set_thought_budget_tokens(*request.thought_budget_tokens);
    }
    chat->set_template_arguments(request.template_arguments);
    chat->set_continue_final_message(request.continue_final_message);
  }
  for (const InputEmbedding& embedding : request.input_embeddings) {
    v1::InputEmbedding* row = wire.add_input_embeddings();
    row->set_position(embedding.position);
    row->set_values(reinterpret_cast<const char*>(embedding.values.data()),
                    embedding.values.size() * sizeof(float));
  }
  wire.set_max_tokens(request.max_tokens);
  wire.set_min_tokens(request.min_tokens);
  SetSampling(request.sampling, wire.mutable_sampling());
  wire.mutable_stop()->Add(request.stop.begin(), request.stop.end());
  wire.set_ignore_eos(request.ignore_eos);
  if (request.logprobs) wire.set_logprobs(*request.logprobs);
  if (request.prompt_logprobs) wire.set_prompt_logprobs(*request.prompt_logprobs);
  SetConstraint(request.constraint, &wire);
  wire.set_return_logits(request.return_logits);
  wire.set_replace(request.replace);
  wire.set_priority(request.priority);
  wire.set_guaranteed(request.guaranteed);
  wire.set_speculate(request.speculate);
  return wire;
}

TokenLogprob FromWire(const v1::TokenLogprob& wire) {
  TokenLogprob out{.token_id = wire.token_id(), .logprob = wire.logprob(), .top = {}};
  out.top.reserve(static_cast<size_t>(wire.top_size()));
  for (const v1::TokenLogprob::Top& top : wire.top()) {
    out.top.emplace_back(top.token_id(), top.logprob());
  }
  return out;
}

void FromWire(const v1::Started& started, Generation* result) {
  result->seed = started.seed();
  result->numerics_class = started.numerics_class();
  result->plan_epoch = started.plan_epoch();
  result->prompt_tokens = started.prompt_tokens();
  result->max_tokens = started.max_tokens();
}

void FromWire(const v1::Finish& finish, Generation* result) {
  result->finish_reason = finish.reason();
  result->prompt_tokens = finish.prompt_tokens();
  result->cached_tokens = finish.cached_tokens();
  result->reasoning_tokens = finish.reasoning_tokens();
  result->drafted_tokens = finish.drafted_tokens();
  result->accepted_tokens = finish.accepted_tokens();
  result->queue_ms = finish.queue_ms();
  result->ttft_ms = finish.ttft_ms();
  result->total_ms = finish.total_ms();
}

std::string MakeRequestId() {
  std::random_device random;
  char text[32];
  std::snprintf(text, sizeof(text), "sdk-%08x%08x%08x", random(), random(), random());
  return text;
}

}  // namespace strata::sdk
