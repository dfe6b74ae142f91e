#include "text/call_grammar/keyword_arguments_grammar.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/call_grammar/markup_grammar.h"
#include "text/grammar/schema_errors.h"
#include "text/tools/python_literal.h"

namespace strata {
namespace {

constexpr size_t kMaxPythonNameBytes = 256;

// The members of one shape, divided by commas.
class KeywordsWriter {
 public:
  KeywordsWriter(const OfferedTool& tool, const KeywordMarkup& markup, SchemaGrammar* writer)
      : tool_(tool), markup_(markup), writer_(writer) {}

  absl::StatusOr<GrammarExpr> Write(const ObjectShape& shape) {
    std::vector<ObjectShape::Property> properties = shape.properties;
    std::stable_partition(properties.begin(), properties.end(),
                          [](const ObjectShape::Property& p) { return p.declared; });
    size_t required = 0;
    for (const ObjectShape::Property& property : properties) {
      Goal goal = property.goal;
      for (const ObjectShape::Rule& rule : shape.rules) {
        if (rule.names.Contains(property.name)) goal.Add(rule.goal);
      }
      if (goal.IsNothing() && !property.required) {
        continue;
      }
      if (!IsPythonName(property.name)) {
        return ToolNotHeld(
            tool_.name, markup_.format.name,
            absl::StrCat("its parameter ", QuotedText(property.name), " is no plain word"));
      }
      required += property.required ? 1 : 0;
      ASSIGN_OR_RETURN(GrammarExpr value, Value(goal));
      members_.push_back(
          {GrammarExpr::Sequence({GrammarExpr::Literal(property.name + std::string(markup_.equals)),
                                  std::move(value)}),
           property.required});
    }
    if (shape.min > required || (shape.max != kNoCount && shape.max < members_.size())) {
      return ToolNotHeld(tool_.name, markup_.format.name, "the number of its arguments is limited");
    }
    return From(0, /*behind=*/false);
  }

 private:
  struct Member {
    GrammarExpr text;
    bool required;
  };

  absl::StatusOr<GrammarExpr> Value(const Goal& goal) {
    if (markup_.format.quote.empty()) {
      return writer_->OfTypes(goal, kJsonTypes);
    }
    std::vector<JsonType> types(std::begin(kJsonTypes), std::end(kJsonTypes));
    std::erase(types, JsonType::kString);
    ASSIGN_OR_RETURN(GrammarExpr others, writer_->OfTypes(goal, types));
    std::vector<GrammarExpr> ways = {std::move(others)};
    ASSIGN_OR_RETURN(const Shapes shapes, writer_->reader().Read(goal, JsonType::kString));
    for (const Shape& shape : shapes) {
      ASSIGN_OR_RETURN(GrammarExpr text, Text(std::get<StringSet>(shape)));
      ways.push_back(std::move(text));
    }
    return GrammarExpr::Choice(std::move(ways));
  }

  // Between marks, as it is.
  absl::StatusOr<GrammarExpr> Text(const StringSet& set) {
    WorkBudget* const budget = writer_->budget();
    ASSIGN_OR_RETURN(AutomatonPtr texts, set.ToAutomaton(budget));
    if (!HasToken(markup_.quote)) {
      ASSIGN_OR_RETURN(const AutomatonPtr open,
                       TextsWithout({std::string(markup_.format.quote)}, budget));
      ASSIGN_OR_RETURN(texts, IntersectionOf(texts, open, budget));
    }
    if (texts->IsEmpty()) {
      return GrammarExpr::Nothing();
    }
    ASSIGN_OR_RETURN(GrammarExpr text, writer_->texts().Raw(texts));
    return GrammarExpr::Sequence({markup_.quote, std::move(text), markup_.quote});
  }

  // The members from `next` on; `behind`: there is one before them.
  GrammarExpr From(size_t next, bool behind) {
    if (next == members_.size()) {
      return GrammarExpr::EmptyText();
    }
    const auto [found, added] = rules_.emplace(std::pair(next, behind), 0);
    if (added) {
      const size_t rule = writer_->grammar().AddRule("arguments");
      found->second = rule;
      std::vector<GrammarExpr> ways = {
          GrammarExpr::Sequence({GrammarExpr::Literal(behind ? std::string(markup_.comma) : ""),
                                 members_[next].text, From(next + 1, true)})};
      if (!members_[next].required) {
        ways.push_back(From(next + 1, behind));
      }
      writer_->grammar().SetBody(rule, GrammarExpr::Choice(std::move(ways)));
      return GrammarExpr::Rule(rule);
    }
    return GrammarExpr::Rule(found->second);
  }

  const OfferedTool& tool_;
  const KeywordMarkup& markup_;
  SchemaGrammar* const writer_;
  std::vector<Member> members_;
  std::map<std::pair<size_t, bool>, size_t> rules_;
};

}  // namespace

bool IsPythonName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxPythonNameBytes &&
         std::ranges::all_of(name, &IsPythonNameByte);
}

absl::StatusOr<GrammarExpr> KeywordArgumentsOf(const OfferedTool& tool, const Goal& goal,
                                               const KeywordMarkup& markup, SchemaGrammar* writer) {
  ASSIGN_OR_RETURN(const Shapes shapes, writer->reader().Read(goal, JsonType::kObject));
  std::vector<GrammarExpr> ways;
  for (const Shape& shape : shapes) {
    ASSIGN_OR_RETURN(GrammarExpr way,
                     KeywordsWriter(tool, markup, writer).Write(std::get<ObjectShape>(shape)));
    ways.push_back(std::move(way));
  }
  return GrammarExpr::Choice(std::move(ways));
}

}  // namespace strata
