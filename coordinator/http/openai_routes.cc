// /v1/completions and /v1/chat/completions.
#include <ctime>
#include <utility>

#include "common/status.h"
#include "coordinator/http/http_api.h"
#include "coordinator/http/openai_answer.h"
#include "coordinator/http/openai_request.h"

namespace strata {
namespace {

// Texts become token ids here where the coordinator would make others of them, or where echo needs
// them to name logprobs; `context` gets what echo shows of each prompt.
absl::Status PreparePrompts(const ModelRuntime& model, const ModelRuntime::LimitFn& limit,
                            OpenAiRequest* request, OpenAiContext* context) {
  for (v1::GenerateRequest& prompt : request->prompts) {
    std::vector<uint32_t> ids(prompt.tokens().ids().begin(), prompt.tokens().ids().end());
    std::string text;
    if (prompt.has_text()) {
      text = prompt.text();
      ASSIGN_OR_RETURN(ids, model.EncodePrompt(text, request->add_special_tokens, limit));
      prompt.mutable_tokens()->mutable_ids()->Assign(ids.begin(), ids.end());
    } else if (model.tokenizer != nullptr) {
      text = model.tokenizer->Decode(ids, false);
    }
    if (request->echo) {
      context->prompt_texts.push_back(std::move(text));
      context->prompt_ids.push_back(std::move(ids));
    }
  }
  return absl::OkStatus();
}

// One for each choice; takes the prompts out of `request`.
std::vector<ChoiceRequest> ChoicesOf(OpenAiRequest* request, const std::string& request_id,
                                     uint64_t seed) {
  std::vector<ChoiceRequest> choices;
  for (v1::GenerateRequest& prompt : request->prompts) {
    AddChoices(std::move(prompt), request->best_of, request_id, seed, &choices);
  }
  return choices;
}

}  // namespace

absl::Status HttpApi::ServeOpenAi(Call* call, OpenAiRequest request) {
  ASSIGN_OR_RETURN(const CallOptions options,
                   OptionsOf(*call, request.prompts.size() * request.best_of));
  ASSIGN_OR_RETURN(const auto model, ModelOf(request.model));
  request.model = model->name;
  for (v1::GenerateRequest& prompt : request.prompts) {
    prompt.set_model(model->name);
  }
  OpenAiContext context;
  context.request_id = call->request_id;
  context.unix_seconds = std::time(nullptr);
  context.tokenizer = std::shared_ptr<const Tokenizer>(model, model->tokenizer.get());
  if (request.echo || !request.add_special_tokens) {
    RETURN_IF_ERROR(CheckMayRun(*call, options));
    RETURN_IF_ERROR(PreparePrompts(
        *model, [&] { return backend_->LongestPrompt(model->name); }, &request, &context));
  }
  std::vector<ChoiceRequest> choices = ChoicesOf(&request, call->request_id, backend_->DrawSeed());
  RunChoices(call, options, request.default_max_tokens, std::move(choices),
             MakeOpenAiAnswer(request, std::move(context)));
  return absl::OkStatus();
}

absl::Status HttpApi::Completions(Call* call) {
  ASSIGN_OR_RETURN(OpenAiRequest request, ParseCompletion(call->request.body));
  return ServeOpenAi(call, std::move(request));
}

absl::Status HttpApi::ChatCompletions(Call* call) {
  ASSIGN_OR_RETURN(OpenAiRequest request, ParseChatCompletion(call->request.body));
  return ServeOpenAi(call, std::move(request));
}

}  // namespace strata
