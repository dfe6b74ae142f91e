// Bodies of /v1/completions and /v1/chat/completions. Pure.
#ifndef STRATA_COORDINATOR_HTTP_OPENAI_REQUEST_H_
#define STRATA_COORDINATOR_HTTP_OPENAI_REQUEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "strata/v1/inference.pb.h"

namespace strata {

struct OpenAiRequest {
  bool chat = false;
  std::string model;  // "": the one that is loaded.
  // One for each prompt, complete but for its id and choice, and its model where that is "".
  std::vector<v1::GenerateRequest> prompts;
  uint32_t default_max_tokens = 0;  // Where a prompt has no max_tokens.
  uint32_t n = 1;                   // Answers that are shown for each prompt.
  uint32_t best_of = 1;             // Answers that are made: at least n.
  bool stream = false;
  bool include_usage = false;     // In a stream.
  bool continuous_usage = false;  // In each of its chunks, so far.
  bool echo = false;              // Completions: the prompt is shown before the answer.
  // Completions: texts are tokenized as the tokenizer's template says.
  bool add_special_tokens = true;
  bool no_answer = false;  // max_tokens 0: what is generated is not shown.
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  bool negative_seed = false;  // HasNegativeSeed.
};

// INVALID_ARGUMENT, which names the field (FieldOf). Fields that are not known are left alone.
absl::StatusOr<OpenAiRequest> ParseCompletion(std::string_view body);
absl::StatusOr<OpenAiRequest> ParseChatCompletion(std::string_view body);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_OPENAI_REQUEST_H_
