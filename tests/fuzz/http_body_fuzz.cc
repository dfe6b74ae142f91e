// Bodies of the HTTP API: a byte that says which route, then the body. What is accepted is a
// request that is answered, whole or as a stream, in JSON.
#include <nlohmann/json.hpp>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/http/lorax_answer.h"
#include "coordinator/http/lorax_request.h"
#include "coordinator/http/openai_answer.h"
#include "coordinator/http/openai_request.h"
#include "coordinator/http/sampling_fields.h"
#include "tests/coordinator/http/answers.h"
#include "tests/fuzz/input.h"

namespace strata {
namespace {

std::shared_ptr<const Tokenizer> SmallTokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer = testing::MakeSmallTokenizer();
  return tokenizer;
}

void CheckRefused(const absl::Status& status, const HttpAnswer* answer) {
  STRATA_CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  STRATA_CHECK(!ReasonOf(status).empty());
  if (answer != nullptr) STRATA_CHECK(nlohmann::json::accept(answer->Refusal(status).body));
}

void CheckEvents(std::string_view said) {
  while (!said.empty()) {
    const size_t end = said.find("\n\n");
    STRATA_CHECK(end != std::string_view::npos && said.substr(0, 5) == "data:");
    std::string_view data = said.substr(5, end - 5);
    if (data.front() == ' ') data.remove_prefix(1);
    STRATA_CHECK(data == "[DONE]" || nlohmann::json::accept(data));
    said.remove_prefix(end + 2);
  }
}

// Two tokens for each choice, with logprobs.
void Answer(HttpAnswer* answer, size_t choices) {
  std::string said;
  for (size_t i = 0; i < choices; ++i) {
    said += answer->OnMessage(i, testing::StartedMessage(2, 2));
    said += answer->OnMessage(i, testing::TokenMessage(256, "ab", -0.5f));
    said += answer->OnMessage(i, testing::TokenMessage(0xc3, "\xc3", -1.5f));
    said += answer->OnMessage(i, testing::FinishMessage("length", 2, 2));
  }
  if (answer->stream()) {
    CheckEvents(said + answer->EndOfStream());
  } else {
    STRATA_CHECK(said.empty() && nlohmann::json::accept(answer->Whole().body));
  }
}

void RunOpenAi(const absl::StatusOr<OpenAiRequest>& parsed) {
  if (!parsed.ok()) {
    CheckRefused(parsed.status(), nullptr);
    return;
  }
  const size_t choices = parsed->prompts.size() * parsed->best_of;
  STRATA_CHECK(choices >= 1 && choices <= kMaxChoices && parsed->n <= parsed->best_of);
  OpenAiContext context;
  context.request_id = "x";
  context.tokenizer = SmallTokenizer();
  for (const v1::GenerateRequest& prompt : parsed->prompts) {
    STRATA_CHECK(prompt.prompt_case() != v1::GenerateRequest::PROMPT_NOT_SET);
    STRATA_CHECK(static_cast<size_t>(prompt.stop_size()) <= kMaxStopStrings);
    context.prompt_texts.push_back(prompt.text());
    context.prompt_ids.emplace_back(prompt.tokens().ids().begin(), prompt.tokens().ids().end());
  }
  const auto answer = MakeOpenAiAnswer(*parsed, std::move(context));
  Answer(answer.get(), choices);
}

void RunLorax(const absl::StatusOr<LoraxRequest>& parsed) {
  if (!parsed.ok()) {
    CheckRefused(parsed.status(), nullptr);
    return;
  }
  LoraxContext context;
  context.model = "m";
  context.stream = parsed->stream && parsed->best_of == 1;  // Else refused by the route.
  context.tokenizer = SmallTokenizer();
  const auto answer = MakeLoraxAnswer(*parsed, std::move(context));
  CheckRefused(Error(absl::StatusCode::kInvalidArgument, "R", parsed->inputs), answer.get());
  Answer(answer.get(), parsed->best_of);
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;  // NOLINT(google-build-using-namespace)
  fuzz::Input input(data, size);
  const uint32_t route = input.Below(3);
  const std::string body = input.Bytes(size);
  if (route == 0) {
    RunOpenAi(ParseCompletion(body));
  } else if (route == 1) {
    RunOpenAi(ParseChatCompletion(body));
  } else {
    RunLorax(ParseLoraxRequest(body));
  }
  return 0;
}
