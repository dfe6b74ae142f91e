// /tokenize and /detokenize, as vLLM and (with "inputs") LoRAX have them, and vLLM's
// /tokenizer_info.
#include <algorithm>
#include <ctime>
#include <utility>

#include "common/status.h"
#include "coordinator/http/chat_messages.h"
#include "coordinator/http/http_api.h"
#include "coordinator/http/sampling_fields.h"
#include "coordinator/http/token_text.h"

namespace strata {
namespace {

void AnswerJson(const OrderedJson& json, HttpResponder* responder) {
  HttpResponse response;
  response.body = Dump(json);
  responder->Answer(std::move(response));
}

// LoRAX's: [{"id", "text", "start", "stop"}], in characters of the text that the ids make. The
// parts of a character have that character's.
OrderedJson LoraxTokens(const std::vector<uint32_t>& ids, const Tokenizer* tokenizer) {
  const std::string whole = tokenizer->Decode(ids, /*skip_special_tokens=*/false);
  std::vector<size_t> starts;
  TextOffsets offsets(tokenizer);
  offsets.BeginPrompt(whole);
  for (const uint32_t id : ids) {
    starts.push_back(offsets.OfPrompt(id));
  }
  starts.push_back(CountCharacters(whole));
  OrderedJson tokens = OrderedJson::array();
  TokenTexts texts(tokenizer);
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string text = texts.Text(ids[i]);
    const size_t least = starts[i] + (text.empty() ? 0 : 1);
    tokens.push_back({{"id", ids[i]},
                      {"text", text},
                      {"start", starts[i]},
                      {"stop", std::max(starts[i + 1], least)}});
    texts.Advance(ids[i]);
  }
  return tokens;
}

}  // namespace

absl::Status HttpApi::Tokenize(Call* call) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(call->request.body));
  Fields fields(json);
  const std::string name = fields.Text("model").value_or("");
  const auto prompt = fields.Text("prompt");
  const auto inputs = fields.Text("inputs");
  const bool special = fields.BoolOr("add_special_tokens", true);
  const bool strings = fields.BoolOr("return_token_strs", false);
  v1::ChatInput chat;
  const bool is_chat = fields.Find("messages") != nullptr;
  if (is_chat) {
    OrderedBody ordered(call->request.body, MessageMembers());
    ReadMessages(&fields, &ordered, &chat);
  } else if (!prompt.has_value() && !inputs.has_value()) {
    fields.Fail(BadField("prompt", "given, or messages, or inputs"));
  }
  RETURN_IF_ERROR(fields.status());
  ASSIGN_OR_RETURN(const auto model, ModelOf(name));
  std::vector<uint32_t> ids;
  if (is_chat) {
    ASSIGN_OR_RETURN(const std::string text, model->RenderChat(chat, std::time(nullptr)));
    ASSIGN_OR_RETURN(ids, model->EncodeAny(text, false));
  } else {
    ASSIGN_OR_RETURN(ids, model->EncodeAny(prompt.has_value() ? *prompt : *inputs, special));
  }
  if (!is_chat && !prompt.has_value()) {
    AnswerJson(LoraxTokens(ids, model->tokenizer.get()), call->responder.get());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const uint64_t longest, MaxTokensOf(model->name));
  OrderedJson answer{{"count", ids.size()}, {"max_model_len", longest}, {"tokens", ids}};
  if (strings) {
    answer["token_strs"] = OrderedJson::array();
    for (const OrderedJson& token : LoraxTokens(ids, model->tokenizer.get())) {
      answer["token_strs"].push_back(token["text"]);
    }
  }
  AnswerJson(answer, call->responder.get());
  return absl::OkStatus();
}

absl::Status HttpApi::Detokenize(Call* call) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(call->request.body));
  Fields fields(json);
  const std::string name = fields.Text("model").value_or("");
  const bool skip_special = fields.BoolOr("skip_special_tokens", false);
  v1::TokenIds ids;
  const Json* tokens = fields.Find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    fields.Fail(BadField("tokens", "an array of token ids"));
  } else {
    ReadTokenIds(*tokens, "tokens", &fields, &ids);
  }
  RETURN_IF_ERROR(fields.status());
  ASSIGN_OR_RETURN(const auto model, ModelOf(name));
  if (model->tokenizer == nullptr) {
    return model->tokenizer_problem;
  }
  const std::vector<uint32_t> list(ids.ids().begin(), ids.ids().end());
  AnswerJson({{"prompt", model->tokenizer->Decode(list, skip_special)}}, call->responder.get());
  return absl::OkStatus();
}

absl::Status HttpApi::TokenizerInfo(Call* call) {
  ASSIGN_OR_RETURN(const auto model, ModelOf(call->request.Query("model")));
  if (model->tokenizer == nullptr) {
    return model->tokenizer_problem;
  }
  ASSIGN_OR_RETURN(const uint64_t longest, MaxTokensOf(model->name));
  const auto or_null = [](const std::string& text) {
    return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
  };
  // Names of tokenizer_config.json.
  AnswerJson({{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"bos_token", or_null(model->manifest->bos_token)},
              {"eos_token", or_null(model->manifest->eos_token)},
              {"model_max_length", longest},
              {"chat_template", or_null(model->manifest->chat_template)}},
             call->responder.get());
  return absl::OkStatus();
}

}  // namespace strata
