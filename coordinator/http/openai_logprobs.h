// Logprobs as OpenAI's two routes write them. Pure.
#ifndef STRATA_COORDINATOR_HTTP_OPENAI_LOGPROBS_H_
#define STRATA_COORDINATOR_HTTP_OPENAI_LOGPROBS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "coordinator/http/json_body.h"
#include "coordinator/http/token_text.h"
#include "strata/v1/types.pb.h"

namespace strata {

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, as lists by token.
class CompletionLogprobs {
 public:
  // `texts` follows the ids that the tokens belong to; it and the tokenizer, which may be null,
  // outlive this.
  CompletionLogprobs(const Tokenizer* tokenizer, TokenTexts* texts)
      : texts_(texts), offsets_in_text_(tokenizer) {}

  // The text begins with that of a prompt, and the prompt with token `first`, which nothing comes
  // before.
  void BeginPrompt(std::string text, uint32_t first);
  void AddOfPrompt(const v1::TokenLogprob& token, uint32_t top);
  void AddOfAnswer(const v1::TokenLogprob& token, uint32_t top);
  bool empty() const { return tokens_.empty(); }
  // What was added since the last one; offsets go on.
  OrderedJson Take();

 private:
  void Add(const v1::TokenLogprob& token, uint32_t top, size_t offset);

  TokenTexts* const texts_;
  TextOffsets offsets_in_text_;
  OrderedJson tokens_ = OrderedJson::array();
  OrderedJson logprobs_ = OrderedJson::array();
  OrderedJson top_ = OrderedJson::array();
  OrderedJson offsets_ = OrderedJson::array();
};

// An entry of chat's "content": {"token", "logprob", "bytes", "top_logprobs"}. Advances `texts`.
OrderedJson ChatLogprob(const v1::TokenLogprob& token, uint32_t top, TokenTexts* texts);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_OPENAI_LOGPROBS_H_
