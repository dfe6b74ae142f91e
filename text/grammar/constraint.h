// What an answer may be held to, as a grammar over its characters. Pure; any thread.
//
// An answer that follows the grammar satisfies the constraint, and every value that satisfies it
// can be written so; docs/internals/constraints.md says in which spellings.
#ifndef STRATA_TEXT_GRAMMAR_CONSTRAINT_H_
#define STRATA_TEXT_GRAMMAR_CONSTRAINT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/grammar/grammar.h"
#include "text/grammar/schema_options.h"

namespace strata {

// JSON that satisfies a schema of draft 2020-12 (as text). Members come in the order in which the
// schema lists them, others behind them. Fails with SCHEMA_INVALID (it is no schema),
// SCHEMA_UNSUPPORTED (no grammar holds a keyword; keyword and path are facts of the error),
// SCHEMA_ADMITS_NOTHING and SCHEMA_TOO_COMPLEX.
absl::StatusOr<Grammar> GrammarOfSchema(std::string_view schema, const SchemaOptions& options);

// Any object of JSON.
Grammar GrammarOfJsonObject(const GrammarLimits& limits);

// Texts that `pattern` takes as a whole. PATTERN_INVALID, PATTERN_UNSUPPORTED or
// SCHEMA_TOO_COMPLEX.
absl::StatusOr<Grammar> GrammarOfPattern(std::string_view pattern, const GrammarLimits& limits);

// One of these texts. CHOICES_INVALID where there is none, or one is no UTF-8; SCHEMA_TOO_COMPLEX.
absl::StatusOr<Grammar> GrammarOfChoices(const std::vector<std::string>& choices,
                                         const GrammarLimits& limits);

// Texts of the rule `root` of an EBNF as llama.cpp (GBNF) and XGrammar spell it: rules NAME ::=
// BODY, texts in quotes, classes, `.`, groups, `|`, counts * + ? {N,M}, comments behind #.
// GRAMMAR_INVALID names the line; GRAMMAR_UNSUPPORTED: lookaheads, tokens and macros;
// SCHEMA_TOO_COMPLEX.
absl::StatusOr<Grammar> GrammarOfEbnf(std::string_view text, const GrammarLimits& limits);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_CONSTRAINT_H_
