// What one answer is held to: data that requests become, before anything is compiled.
#ifndef STRATA_TEXT_MASKS_ANSWER_RULE_H_
#define STRATA_TEXT_MASKS_ANSWER_RULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strata {

// A thought before the text. Within it any token may come but those that end an answer.
struct ThoughtRule {
  // What ends it. The text begins with the token behind it, which no token goes beyond.
  std::string close;
  // The special token that `close` is; then no other tokens mean it.
  std::optional<uint32_t> close_token = std::nullopt;
  // As tokens: how its end is forced. At least one. Where the first one is `close_token` and the
  // text has a grammar, the others follow it whatever ends the thought.
  std::vector<uint32_t> close_ids;
  // The prompt has begun it. Else an answer that begins with these tokens does; where they are none
  // there is no thought.
  bool opened = false;
  std::vector<uint32_t> open_ids = {};
  // Tokens that never come within it.
  std::vector<uint32_t> barred_ids = {};
  // Tokens of white space may come between it and the text.
  bool blanks_behind = true;
  // Tokens within it, behind which its end is forced. Absent: any number.
  std::optional<uint32_t> budget_tokens = std::nullopt;
};

struct AnswerRule {
  std::optional<ThoughtRule> thought = std::nullopt;
  // Of a text with a grammar: while there are fewer tokens, and with ignore_eos always, no token
  // ends it as long as another may come.
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
};

}  // namespace strata

#endif  // STRATA_TEXT_MASKS_ANSWER_RULE_H_
