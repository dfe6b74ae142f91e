// Regular expressions of ECMA-262 (those of JSON schema; the flag u), as far as they are regular.
// Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_REGEX_PARSER_H_
#define STRATA_TEXT_GRAMMAR_REGEX_PARSER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "text/grammar/grammar_limits.h"
#include "text/grammar/regex_node.h"
#include "text/grammar/work_budget.h"

namespace strata {

enum class PatternUse {
  kSearch,  // Texts that have a match anywhere.
  kWhole,   // Texts that are one.
};

// The texts that the pattern takes. Known are characters, `.`, classes, \d \w \s and their
// opposites (ASCII but for \s), escapes of characters, groups, alternatives, counts (lazy ones take
// the same texts), ^ and $ where a text can only begin or end there. kInvalidArgument for what is
// no pattern, kUnimplemented for what is not known here, each with a message that continues "the
// pattern "; SCHEMA_TOO_COMPLEX beyond the limits.
absl::StatusOr<RegexPtr> ParsePattern(std::string_view pattern, PatternUse use, WorkBudget* budget);
// The same with a budget of its own.
absl::StatusOr<RegexPtr> ParsePattern(std::string_view pattern, PatternUse use,
                                      const GrammarLimits& limits);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_REGEX_PARSER_H_
