// Messages of an answer, as the coordinator sends them.
#ifndef STRATA_TESTS_COORDINATOR_HTTP_ANSWERS_H_
#define STRATA_TESTS_COORDINATOR_HTTP_ANSWERS_H_

#include <memory>
#include <string>

#include "coordinator/tokenizer/tokenizer.h"
#include "strata/v1/inference.pb.h"
#include "tests/coordinator/tokenizer/small_tokenizer.h"

namespace strata::testing {

inline std::shared_ptr<const Tokenizer> MakeSmallTokenizer() {
  return *ParseTokenizer(SmallTokenizer().dump());
}

inline v1::GenerateResponse StartedMessage(uint32_t prompt_tokens, uint32_t max_tokens) {
  v1::GenerateResponse message;
  message.set_request_id("r");
  message.mutable_started()->set_seed(7);
  message.mutable_started()->set_numerics_class("cpu-2");
  message.mutable_started()->set_prompt_tokens(prompt_tokens);
  message.mutable_started()->set_max_tokens(max_tokens);
  return message;
}

inline v1::TokenLogprob Logprob(uint32_t id, float logprob) {
  v1::TokenLogprob token;
  token.set_token_id(id);
  token.set_logprob(logprob);
  return token;
}

// A token that says `text`, with its logprob where `logprob` is not 0.
inline v1::GenerateResponse TokenMessage(uint32_t id, const std::string& text, float logprob = 0) {
  v1::GenerateResponse message;
  message.add_token_ids(id);
  message.set_text(text);
  if (logprob != 0) *message.add_logprobs() = Logprob(id, logprob);
  return message;
}

inline v1::GenerateResponse FinishMessage(const std::string& reason, uint32_t prompt_tokens,
                                          uint32_t completion_tokens, uint32_t cached_tokens = 0) {
  v1::GenerateResponse message;
  message.mutable_finish()->set_reason(reason);
  message.mutable_finish()->set_prompt_tokens(prompt_tokens);
  message.mutable_finish()->set_completion_tokens(completion_tokens);
  message.mutable_finish()->set_cached_tokens(cached_tokens);
  return message;
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_COORDINATOR_HTTP_ANSWERS_H_
