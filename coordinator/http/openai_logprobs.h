// Logprobs as OpenAI's two routes write them. Pure.
#ifndef STRATA_COORDINATOR_HTTP_OPENAI_LOGPROBS_H_
#define STRATA_COORDINATOR_HTTP_OPENAI_LOGPROBS_H_

#include <cstddef>
#include <cstdint>

#include "coordinator/http/json_body.h"
#include "coordinator/http/token_text.h"
#include "strata/v1/types.pb.h"

namespace strata {

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, as lists by token.
class CompletionLogprobs {
 public:
  // `texts` follows the text that the tokens belong to, and outlives this.
  explicit CompletionLogprobs(TokenTexts* texts) : texts_(texts) {}

  // The first token of a prompt, which nothing comes before.
  void AddFirst(uint32_t id);
  void Add(const v1::TokenLogprob& token, uint32_t top);
  bool empty() const { return tokens_.empty(); }
  // What was added since the last one; offsets go on.
  OrderedJson Take();

 private:
  void AddText(const std::string& text);

  TokenTexts* const texts_;
  size_t offset_ = 0;
  OrderedJson tokens_ = OrderedJson::array();
  OrderedJson logprobs_ = OrderedJson::array();
  OrderedJson top_ = OrderedJson::array();
  OrderedJson offsets_ = OrderedJson::array();
};

// An entry of chat's "content": {"token", "logprob", "bytes", "top_logprobs"}. Advances `texts`.
OrderedJson ChatLogprob(const v1::TokenLogprob& token, uint32_t top, TokenTexts* texts);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_OPENAI_LOGPROBS_H_
