// What tokens are called in logprobs.
#ifndef STRATA_COORDINATOR_HTTP_TOKEN_TEXT_H_
#define STRATA_COORDINATOR_HTTP_TOKEN_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "coordinator/tokenizer/tokenizer.h"

namespace strata {

// Follows the ids of a text, since what an id says depends on those before it: a space in front, or
// half a character. Special tokens are spelled out.
class TokenTexts {
 public:
  // Without a tokenizer a token is called "token_id:17". It outlives this.
  explicit TokenTexts(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // What `id` says as the next one; half a character is U+FFFD.
  std::string Text(uint32_t id) const;
  // It is the next one.
  void Advance(uint32_t id);

 private:
  const Tokenizer* const tokenizer_;
  std::deque<uint32_t> before_;
};

// Unicode characters of UTF-8.
size_t CountCharacters(std::string_view text);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_TOKEN_TEXT_H_
