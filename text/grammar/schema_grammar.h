// Writes what a schema admits as a grammar. One thread.
#ifndef STRATA_TEXT_GRAMMAR_SCHEMA_GRAMMAR_H_
#define STRATA_TEXT_GRAMMAR_SCHEMA_GRAMMAR_H_

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "text/grammar/grammar.h"
#include "text/grammar/json_texts.h"
#include "text/grammar/schema_reader.h"
#include "text/grammar/shape.h"

namespace strata {

class SchemaGrammar {
 public:
  // All must outlive this. `escaped` is JsonTexts'.
  SchemaGrammar(SchemaReader* reader, Grammar* grammar, WorkBudget* budget, CharSet escaped = {})
      : reader_(reader),
        grammar_(grammar),
        budget_(budget),
        texts_(grammar, budget, std::move(escaped)) {}

  // Adds the rules for `goal` and all below it; the rule of `goal` is the root then.
  absl::Status Write(const Goal& goal);
  // What `goal` admits of these types. Of objects alone, whatever may follow it.
  absl::StatusOr<GrammarExpr> OfTypes(const Goal& goal, std::span<const JsonType> types);
  // Adds the rules that what was written refers to.
  absl::Status Finish();

  // For what writes arrays and objects.
  GrammarExpr Refer(const Goal& goal);
  JsonTexts& texts() { return texts_; }
  Grammar& grammar() { return *grammar_; }
  WorkBudget* budget() { return budget_; }
  SchemaReader& reader() { return *reader_; }

 private:
  absl::StatusOr<GrammarExpr> Write(const Shape& shape);

  SchemaReader* const reader_;
  Grammar* const grammar_;
  WorkBudget* const budget_;
  JsonTexts texts_;
  std::map<Goal, size_t> rules_;
  std::vector<std::pair<Goal, size_t>> open_;  // Rules that have no body yet.
};

// One array's or object's expression; for SchemaGrammar.
absl::StatusOr<GrammarExpr> WriteArray(const ArrayShape& shape, SchemaGrammar* writer);
absl::StatusOr<GrammarExpr> WriteObject(const ObjectShape& shape, SchemaGrammar* writer);

}  // namespace strata

#endif  // STRATA_TEXT_GRAMMAR_SCHEMA_GRAMMAR_H_
