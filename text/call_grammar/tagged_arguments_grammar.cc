#include "text/call_grammar/tagged_arguments_grammar.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/grammar/regex_parser.h"
#include "text/grammar/schema_errors.h"

namespace strata {
namespace {

constexpr size_t kMaxKeyBytes = 256;

// What the reader takes for JSON of a type, where a value may have that type.
std::string_view PatternOf(std::string_view type) {
  constexpr std::string_view kNumber = "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+\\-]?[0-9]+)?";
  if (type == "number" || type == "integer") return kNumber;
  if (type == "boolean") return "true|false|True|False";
  if (type == "null") return "null|None";
  if (type == "array") return "\\[[\\s\\S]*";
  if (type == "object") return "\\{[\\s\\S]*";
  return "";
}

class ArgumentsWriter {
 public:
  ArgumentsWriter(const OfferedTool& tool, const TaggedMarkup& markup, SchemaGrammar* writer)
      : tool_(tool), markup_(markup), writer_(writer), budget_(writer->budget()) {}

  absl::StatusOr<GrammarExpr> Object(const ObjectShape& shape) {
    std::vector<ObjectShape::Property> properties = shape.properties;
    std::stable_partition(properties.begin(), properties.end(),
                          [](const ObjectShape::Property& p) { return p.declared; });
    std::vector<GrammarExpr> parts;
    size_t required = 0;
    for (const ObjectShape::Property& property : properties) {
      Goal goal = property.goal;
      for (const ObjectShape::Rule& rule : shape.rules) {
        if (rule.names.Contains(property.name)) goal.Add(rule.goal);
      }
      if (goal.IsNothing() && !property.required) {
        continue;
      }
      required += property.required ? 1 : 0;
      ASSIGN_OR_RETURN(GrammarExpr member, Member(property.name, goal));
      parts.push_back(property.required ? std::move(member)
                                        : GrammarExpr::Optional(std::move(member)));
    }
    if (shape.min > required || (shape.max != kNoCount && shape.max < parts.size())) {
      return NotHeld("the number of its arguments is limited");
    }
    return GrammarExpr::Sequence(std::move(parts));
  }

 private:
  absl::Status NotHeld(std::string_view why) const {
    return ToolNotHeld(tool_.name, markup_.format.name, why);
  }

  absl::StatusOr<GrammarExpr> Member(const std::string& key, const Goal& goal) {
    const bool plain = std::ranges::all_of(key, [](unsigned char c) {
      return c > 0x20 && c != 0x7F &&
             std::string_view("<>\"=[]{}").find(static_cast<char>(c)) == std::string_view::npos;
    });
    if (!plain || key.empty() || key.size() > kMaxKeyBytes || key.find("｜") != std::string::npos) {
      return NotHeld(absl::StrCat("its parameter ", QuotedText(key), " is no plain word"));
    }
    ASSIGN_OR_RETURN(const GrammarExpr text, Text(key, goal));
    ASSIGN_OR_RETURN(const GrammarExpr json, Json(key, goal));
    const auto member = [&](const GrammarExpr& key_end, const GrammarExpr& value) {
      return GrammarExpr::Sequence(
          {markup_.key_begin, GrammarExpr::Literal(key), key_end, value, markup_.value_end});
    };
    if (!Marks()) {
      return member(markup_.key_end, GrammarExpr::Choice({text, json}));
    }
    return GrammarExpr::Choice({member(markup_.key_end, text), member(markup_.json_key_end, json)});
  }

  // Whether the tags themselves say which values are texts.
  bool Marks() const { return markup_.format.key_end.ends_with("=\""); }

  // Values that are written as JSON.
  absl::StatusOr<GrammarExpr> Json(const std::string& key, const Goal& goal) {
    // The reader takes a string of JSON for one only where any type may be.
    const bool strings = !Marks() && tool_.types.TypesOf(key).empty();
    std::vector<JsonType> types;
    for (const JsonType type : kJsonTypes) {
      if (type != JsonType::kString || strings) types.push_back(type);
    }
    if (!Marks() && tool_.types.IsText(key)) {
      return GrammarExpr::Nothing();
    }
    return writer_->OfTypes(goal, types);
  }

  // Strings, written as they are.
  absl::StatusOr<GrammarExpr> Text(const std::string& key, const Goal& goal) {
    const std::vector<std::string> types = tool_.types.TypesOf(key);
    if (!Marks() && types.empty()) {
      return GrammarExpr::Nothing();
    }
    ASSIGN_OR_RETURN(const Shapes shapes, writer_->reader().Read(goal, JsonType::kString));
    std::vector<GrammarExpr> ways;
    for (const Shape& shape : shapes) {
      ASSIGN_OR_RETURN(AutomatonPtr texts, std::get<StringSet>(shape).ToAutomaton(budget_));
      if (!markup_.text_end.empty()) {
        ASSIGN_OR_RETURN(const AutomatonPtr open, TextsWithout({markup_.text_end}, budget_));
        ASSIGN_OR_RETURN(texts, IntersectionOf(texts, open, budget_));
      }
      if (!Marks()) {
        for (const std::string& type : types) {
          ASSIGN_OR_RETURN(texts, WithoutJson(texts, type));
        }
      }
      if (texts->IsEmpty()) {
        continue;
      }
      ASSIGN_OR_RETURN(GrammarExpr way, writer_->texts().Raw(texts));
      ways.push_back(std::move(way));
    }
    return GrammarExpr::Choice(std::move(ways));
  }

  // Texts that the reader takes for no JSON of that type.
  absl::StatusOr<AutomatonPtr> WithoutJson(const AutomatonPtr& texts, const std::string& type) {
    const std::string_view pattern = PatternOf(type);
    if (pattern.empty()) {
      return texts;
    }
    constexpr std::string_view kBlanks = "[ \\t\\r\\n]*";
    ASSIGN_OR_RETURN(const RegexPtr json,
                     ParsePattern(absl::StrCat(std::string(kBlanks), "(", std::string(pattern), ")",
                                               std::string(kBlanks)),
                                  PatternUse::kWhole, budget_));
    ASSIGN_OR_RETURN(const AutomatonPtr taken, AutomatonOf(json, budget_));
    return DifferenceOf(texts, taken, budget_);
  }

  const OfferedTool& tool_;
  const TaggedMarkup& markup_;
  SchemaGrammar* const writer_;
  WorkBudget* const budget_;
};

}  // namespace

TaggedMarkup::TaggedMarkup(const CallWriting& writing, const ToolFormat& row,
                           const SpecialTokenFn& special)
    : format(row),
      key_begin(Markup(writing.key_begin, row, special)),
      key_end(Markup(writing.key_end, row, special)),
      json_key_end(writing.json_key_end.empty() ? key_end
                                                : Markup(writing.json_key_end, row, special)),
      value_end(Markup(writing.value_end, row, special)) {
  const GrammarExpr close = Markup(row.value_close, row, special);
  if (!HasToken(close)) {
    text_end = row.value_close;
    escaped = CharSet::Of(static_cast<unsigned char>(text_end.front()));
  }
}

absl::StatusOr<GrammarExpr> TaggedArgumentsOf(const OfferedTool& tool, const Goal& goal,
                                              const TaggedMarkup& markup, SchemaGrammar* writer) {
  ASSIGN_OR_RETURN(const Shapes shapes, writer->reader().Read(goal, JsonType::kObject));
  ArgumentsWriter arguments(tool, markup, writer);
  std::vector<GrammarExpr> ways;
  for (const Shape& shape : shapes) {
    ASSIGN_OR_RETURN(GrammarExpr way, arguments.Object(std::get<ObjectShape>(shape)));
    ways.push_back(std::move(way));
  }
  return GrammarExpr::Choice(std::move(ways));
}

}  // namespace strata
