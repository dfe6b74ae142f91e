// Answers of /v1/completions and /v1/chat/completions, whole and as streams. Pure.
#ifndef STRATA_COORDINATOR_HTTP_OPENAI_ANSWER_H_
#define STRATA_COORDINATOR_HTTP_OPENAI_ANSWER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/http/http_answer.h"
#include "coordinator/http/openai_request.h"
#include "text/tokenizer/tokenizer.h"

namespace strata {

// What is not in the request's body.
struct OpenAiContext {
  std::string request_id;    // "abc": the answer's id is "cmpl-abc" or "chatcmpl-abc".
  int64_t unix_seconds = 0;  // When it was made.
  std::shared_ptr<const Tokenizer> tokenizer{};  // For logprobs; may be null.
  // For echo, by prompt: its text and, for logprobs, its ids.
  std::vector<std::string> prompt_texts{};
  std::vector<std::vector<uint32_t>> prompt_ids{};
};

// Choice `p * best_of + c` is the c-th of prompt p.
std::unique_ptr<HttpAnswer> MakeOpenAiAnswer(const OpenAiRequest& request, OpenAiContext context);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_OPENAI_ANSWER_H_
