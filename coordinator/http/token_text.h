// What tokens are called in logprobs, and where they stand in a text.
#ifndef STRATA_COORDINATOR_HTTP_TOKEN_TEXT_H_
#define STRATA_COORDINATOR_HTTP_TOKEN_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace strata {

// What stands in for a prompt that is not shown: ids of a text, so that a word behind them keeps
// the blank that the first word of a text loses. Empty without a tokenizer.
std::vector<uint32_t> IdsBehindPrompt(const Tokenizer* tokenizer);

// Follows the ids of a text, since what an id says depends on those before it: a space in front, or
// half a character. Special tokens are spelled out.
class TokenTexts {
 public:
  // Without a tokenizer a token is called "token_id:17". It outlives this. `before` are ids in
  // front of the first one.
  explicit TokenTexts(const Tokenizer* tokenizer, std::span<const uint32_t> before = {})
      : tokenizer_(tokenizer), before_(before.begin(), before.end()) {}

  // What `id` says as the next one; a part of a character is U+FFFD, and the last part is the whole
  // character.
  std::string Text(uint32_t id) const;
  // What `id` as the next one adds to the bytes of the text: of a part of a character its own
  // bytes, else those of Text(id). nullopt without a tokenizer.
  std::optional<std::string> Bytes(uint32_t id) const;
  // It is the next one.
  void Advance(uint32_t id);

 private:
  // How the ids before would end if nothing followed: U+FFFD for each part of a character that is
  // not complete.
  const std::string& Unfinished() const;

  const Tokenizer* const tokenizer_;
  std::deque<uint32_t> before_;
  mutable std::optional<std::string> unfinished_;
};

// Follows the ids of a text that is shown: the one of a prompt, an answer's, or both. Special
// tokens are in a prompt's text where they are spelled out there, and never in an answer's.
class TextOffsets {
 public:
  // The tokenizer may be null, and outlives this.
  explicit TextOffsets(const Tokenizer* tokenizer);

  // The text begins with that of a prompt. Before all others, or not at all.
  void BeginPrompt(std::string text);
  // So many characters of the text are in front of the character that `id`, the next one of the
  // prompt or the answer, begins or goes on with.
  size_t OfPrompt(uint32_t id);
  size_t OfAnswer(uint32_t id);

 private:
  bool IsSpecial(uint32_t id) const;
  void Add(uint32_t id);

  const Tokenizer* const tokenizer_;
  std::unique_ptr<Tokenizer::Stream> stream_;  // Null without a tokenizer.
  std::string prompt_;
  size_t byte_ = 0;        // Of the prompt, behind what was said of it.
  size_t characters_ = 0;  // Said so far.
  bool in_answer_ = false;
};

// Unicode characters of UTF-8.
size_t CountCharacters(std::string_view text);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_TOKEN_TEXT_H_
