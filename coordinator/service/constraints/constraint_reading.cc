#include "coordinator/service/constraints/constraint_reading.h"

#include <utility>
#include <vector>

#include "common/status.h"
#include "text/grammar/constraint.h"

namespace strata {
namespace {

absl::Status BadConstraint(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FIELD", what).Fact("field", "constraint");
}

size_t SourceBytes(const v1::Constraint& constraint) {
  size_t bytes =
      constraint.json_schema().size() + constraint.regex().size() + constraint.grammar().size();
  for (const std::string& text : constraint.choices().texts()) {
    bytes += text.size() + 1;
  }
  return bytes;
}

absl::StatusOr<Grammar> GrammarOfConstraint(const v1::Constraint& constraint,
                                            const GrammarLimits& limits) {
  switch (constraint.kind_case()) {
    case v1::Constraint::kJsonSchema:
      return GrammarOfSchema(constraint.json_schema(),
                             {.closed = constraint.strict(), .limits = limits});
    case v1::Constraint::kJsonObject:
      return GrammarOfJsonObject(limits);
    case v1::Constraint::kRegex:
      return GrammarOfPattern(constraint.regex(), limits);
    case v1::Constraint::kChoices:
      return GrammarOfChoices(
          {constraint.choices().texts().begin(), constraint.choices().texts().end()}, limits);
    case v1::Constraint::kGrammar:
      return GrammarOfEbnf(constraint.grammar(), limits);
    default:
      return BadConstraint("a constraint has no kind");
  }
}

}  // namespace

absl::Status CheckConstraint(const v1::Constraint& constraint, size_t max_source_bytes) {
  if (constraint.kind_case() == v1::Constraint::KIND_NOT_SET) {
    return BadConstraint("a constraint names a schema, a pattern, choices, a grammar or an object");
  }
  if (constraint.kind_case() == v1::Constraint::kJsonObject && !constraint.json_object()) {
    return BadConstraint("a constraint's json_object is true, where there is one");
  }
  if (const size_t bytes = SourceBytes(constraint); bytes > max_source_bytes) {
    return Error(absl::StatusCode::kInvalidArgument, "CONSTRAINT_TOO_LONG",
                 "a constraint of " + std::to_string(bytes) + " bytes")
        .Limit("max_constraint_bytes=" + std::to_string(max_source_bytes))
        .Hint("make it smaller, or raise --max-constraint-bytes of strata-coordinator");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> EbnfOfConstraint(const v1::Constraint& constraint,
                                             size_t max_source_bytes) {
  GrammarLimits limits;
  limits.max_source_bytes = max_source_bytes;
  ASSIGN_OR_RETURN(Grammar grammar, GrammarOfConstraint(constraint, limits));
  grammar = grammar.Pruned();
  if (grammar.IsEmpty()) {
    return Error(absl::StatusCode::kInvalidArgument, "SCHEMA_ADMITS_NOTHING",
                 "no text satisfies the constraint");
  }
  return EbnfOf(grammar);
}

absl::StatusOr<std::string> EbnfOfCalls(const CallsWanted& calls,
                                        const std::optional<v1::Constraint>& constraint,
                                        const Tokenizer& tokenizer, uint32_t vocab,
                                        size_t max_source_bytes) {
  GrammarLimits limits;
  limits.max_source_bytes = max_source_bytes;
  std::optional<Grammar> text;
  if (constraint.has_value()) {
    ASSIGN_OR_RETURN(text, GrammarOfConstraint(*constraint, limits));
  }
  ASSIGN_OR_RETURN(const Grammar grammar,
                   GrammarOf(calls, tokenizer, vocab, text.has_value() ? &*text : nullptr, limits));
  return EbnfOf(grammar);
}

}  // namespace strata
