// What one answer is held to, as text: data that requests become, before anything is compiled.
#ifndef STRATA_TEXT_MASKS_ANSWER_RULE_H_
#define STRATA_TEXT_MASKS_ANSWER_RULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strata {

// A thought before the text. Within it any token may come but those that end an answer.
struct ThoughtRule {
  // What begins and ends it, as the tokens' bytes say it. The text begins with the token behind
  // `close`, which no token goes beyond.
  std::string open;
  std::string close;
  // The prompt has opened it. Else the answer may begin with `open`; where it does not, there is no
  // thought.
  bool opened = false;
  // Tokens between `open` and `close`, behind which `close` is forced. Absent: any number.
  std::optional<uint32_t> budget_tokens;
};

struct AnswerRule {
  // The grammar of the text as EBNF (EbnfOf, or a client's); empty: any text.
  std::string ebnf;
  // Special tokens that the grammar or the thought writes, by their texts: in masks they stand for
  // these bytes. All others never come.
  std::vector<std::string> tokens;
  std::optional<ThoughtRule> thought;
};

}  // namespace strata

#endif  // STRATA_TEXT_MASKS_ANSWER_RULE_H_
