#include "text/grammar/schema_grammar.h"

#include <utility>

#include "common/status.h"

namespace strata {

absl::Status SchemaGrammar::Write(const Goal& goal) {
  const GrammarExpr start = Refer(goal);
  const size_t root = grammar_->AddRule("root");
  grammar_->SetBody(root, start);
  grammar_->set_root(root);
  return Finish();
}

absl::Status SchemaGrammar::Finish() {
  while (!open_.empty()) {
    const auto [next, rule] = open_.back();
    open_.pop_back();
    ASSIGN_OR_RETURN(GrammarExpr body, OfTypes(next, kJsonTypes));
    grammar_->SetBody(rule, std::move(body));
    RETURN_IF_ERROR(grammar_->CheckSize(budget_->limits()));
  }
  return absl::OkStatus();
}

GrammarExpr SchemaGrammar::Refer(const Goal& goal) {
  if (goal.IsAnything()) {
    return texts_.AnyValue();
  }
  if (goal.IsNothing()) {
    return GrammarExpr::Choice({});
  }
  const auto [found, added] = rules_.emplace(goal, 0);
  if (added) {
    found->second = grammar_->AddRule("at");
    grammar_->SetEndsValue(found->second);
    open_.emplace_back(goal, found->second);
  }
  return GrammarExpr::Rule(found->second);
}

absl::StatusOr<GrammarExpr> SchemaGrammar::OfTypes(const Goal& goal,
                                                   std::span<const JsonType> types) {
  std::vector<GrammarExpr> ways;
  for (const JsonType type : types) {
    ASSIGN_OR_RETURN(const Shapes shapes, reader_->Read(goal, type));
    for (const Shape& shape : shapes) {
      ASSIGN_OR_RETURN(GrammarExpr way, Write(shape));
      ways.push_back(std::move(way));
    }
  }
  return GrammarExpr::Choice(std::move(ways));
}

absl::StatusOr<GrammarExpr> SchemaGrammar::Write(const Shape& shape) {
  if (const auto* const object = std::get_if<ObjectShape>(&shape)) {
    return WriteObject(*object, this);
  }
  if (const auto* const array = std::get_if<ArrayShape>(&shape)) {
    return WriteArray(*array, this);
  }
  if (const auto* const strings = std::get_if<StringSet>(&shape)) {
    return texts_.String(*strings);
  }
  if (const auto* const numbers = std::get_if<NumberSet>(&shape)) {
    return texts_.Number(*numbers);
  }
  if (const auto* const booleans = std::get_if<BooleanShape>(&shape)) {
    std::vector<GrammarExpr> ways;
    if (booleans->takes_true) {
      ways.push_back(GrammarExpr::Literal("true"));
    }
    if (booleans->takes_false) {
      ways.push_back(GrammarExpr::Literal("false"));
    }
    return GrammarExpr::Choice(std::move(ways));
  }
  return GrammarExpr::Literal("null");
}

}  // namespace strata
