#include "text/grammar/constraint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/grammar/json_texts.h"
#include "text/grammar/regex_parser.h"
#include "text/grammar/schema_document.h"
#include "text/grammar/schema_errors.h"
#include "text/grammar/schema_grammar.h"
#include "text/grammar/schema_reader.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

Error PatternError(std::string_view reason, std::string_view pattern, const absl::Status& status) {
  return Error(
      absl::StatusCode::kInvalidArgument, reason,
      absl::StrCat("the pattern ", QuotedText(pattern), " ", std::string(status.message())));
}

absl::StatusOr<Grammar> Finished(const Grammar& grammar, const GrammarLimits& limits) {
  RETURN_IF_ERROR(grammar.CheckSize(limits));
  Grammar pruned = grammar.Pruned();
  if (pruned.IsEmpty()) {
    return SchemaAdmitsNothing();
  }
  return pruned;
}

}  // namespace

absl::StatusOr<Grammar> GrammarOfSchema(std::string_view schema, const SchemaOptions& options) {
  ASSIGN_OR_RETURN(JsonValue root, ParseJsonValue(schema, options.limits));
  ASSIGN_OR_RETURN(const SchemaDocument document, SchemaDocument::Make(std::move(root)));
  WorkBudget budget(options.limits);
  SchemaReader reader(&document, options.closed, &budget);
  Grammar grammar;
  SchemaGrammar writer(&reader, &grammar, &budget);
  RETURN_IF_ERROR(writer.Write(Goal({Condition::Kind::kHolds, &document.root()})));
  return Finished(grammar, options.limits);
}

Grammar GrammarOfJsonObject(const GrammarLimits& limits) {
  WorkBudget budget(limits);
  Grammar grammar;
  JsonTexts texts(&grammar, &budget);
  const GrammarExpr object = texts.AnyObject();
  const size_t root = grammar.AddRule("root");
  grammar.SetBody(root, object);
  grammar.set_root(root);
  return grammar.Pruned();
}

absl::StatusOr<Grammar> GrammarOfPattern(std::string_view pattern, const GrammarLimits& limits) {
  const absl::StatusOr<RegexPtr> regex = ParsePattern(pattern, PatternUse::kWhole, limits);
  if (absl::IsUnimplemented(regex.status())) {
    return PatternError("PATTERN_UNSUPPORTED", pattern, regex.status());
  }
  if (!regex.ok()) {
    return ReasonOf(regex.status()).empty()
               ? absl::Status(PatternError("PATTERN_INVALID", pattern, regex.status()))
               : regex.status();
  }
  Grammar grammar;
  grammar.SetBody(grammar.AddRule("root"), JsonTexts::Raw(**regex));
  return Finished(grammar, limits);
}

absl::StatusOr<Grammar> GrammarOfChoices(const std::vector<std::string>& choices,
                                         const GrammarLimits& limits) {
  std::vector<GrammarExpr> ways;
  size_t bytes = 0;
  for (const std::string& choice : choices) {
    if (FirstInvalidUtf8(choice)) {
      return Error(absl::StatusCode::kInvalidArgument, "CHOICES_INVALID", "a choice is no UTF-8");
    }
    bytes += choice.size();
    if (bytes > limits.max_source_bytes) {
      return SchemaTooComplex("bytes of choices", limits.max_source_bytes);
    }
    ways.push_back(GrammarExpr::Literal(choice));
  }
  if (ways.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "CHOICES_INVALID", "there is no choice");
  }
  Grammar grammar;
  grammar.SetBody(grammar.AddRule("root"), GrammarExpr::Choice(std::move(ways)));
  return Finished(grammar, limits);
}

}  // namespace strata
