// ^ and $ of a pattern. Pure; any thread.
#ifndef STRATA_TEXT_GRAMMAR_REGEX_ANCHORS_H_
#define STRATA_TEXT_GRAMMAR_REGEX_ANCHORS_H_

#include "absl/status/statusor.h"
#include "text/grammar/regex_parser.h"

namespace strata {

// The texts in which `pattern`, which may hold kBegin and kEnd, has a match anywhere or as a whole.
// The result has neither. kUnimplemented where one stands behind or before characters;
// SCHEMA_TOO_COMPLEX beyond the budget, of which each part of each alternative takes a step.
absl::StatusOr<RegexPtr> ResolveAnchors(const RegexPtr& pattern, PatternUse use,
                                        WorkBudget* budget);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_REGEX_ANCHORS_H_
