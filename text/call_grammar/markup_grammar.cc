#include "text/call_grammar/markup_grammar.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/call_grammar/call_writings.h"
#include "text/grammar/regex_node.h"
#include "text/grammar/schema_errors.h"

namespace strata {
namespace {

constexpr size_t kMaxDigits = 4;

// What a byte of a CallWriting stands for that is no character; nullopt for characters.
std::optional<GrammarExpr> Placeholder(char byte) {
  switch (byte) {
    case kDigits:
      return GrammarExpr::Repeat(GrammarExpr::Class(CharSet::Of('0', '9')), 1, kMaxDigits);
    case kMaybeLine:
      return GrammarExpr::Optional(GrammarExpr::Literal("\n"));
    case kMaybeBlank:
      return GrammarExpr::Optional(GrammarExpr::Literal(" "));
    default:
      return std::nullopt;
  }
}

}  // namespace

GrammarExpr Markup(std::string_view text, const ToolFormat& format, const SpecialTokenFn& special) {
  std::vector<GrammarExpr> parts;
  std::string literal;
  while (!text.empty()) {
    std::string_view longest;
    std::optional<uint32_t> id;
    for (const std::string_view token : format.tokens) {
      if (token.size() > longest.size() && text.starts_with(token)) {
        if (const auto found = special(token)) {
          longest = token;
          id = found;
        }
      }
    }
    std::optional<GrammarExpr> part;
    size_t taken = 1;
    if (id.has_value()) {
      part = GrammarExpr::Token(*id, std::string(longest));
      taken = longest.size();
    } else {
      part = Placeholder(text.front());
    }
    if (part.has_value()) {
      parts.push_back(GrammarExpr::Literal(std::exchange(literal, {})));
      parts.push_back(*std::move(part));
    } else {
      literal += text.front();
    }
    text.remove_prefix(taken);
  }
  parts.push_back(GrammarExpr::Literal(std::move(literal)));
  return GrammarExpr::Sequence(std::move(parts));
}

bool HasToken(const GrammarExpr& markup) {
  return markup.kind == GrammarExpr::Kind::kToken || std::ranges::any_of(markup.children, HasToken);
}

absl::StatusOr<AutomatonPtr> TextsWithout(const std::vector<std::string>& parts,
                                          WorkBudget* budget) {
  std::vector<RegexPtr> ways;
  for (const std::string& part : parts) {
    ways.push_back(RegexText(part));
  }
  const RegexPtr any = RegexRepeat(RegexSet(CharSet::All()), 0, RegexNode::kNoLimit);
  ASSIGN_OR_RETURN(const AutomatonPtr with,
                   AutomatonOf(RegexConcat({any, RegexAlternate(std::move(ways)), any}), budget));
  return ComplementOf(with, budget);
}

absl::Status ToolNotHeld(std::string_view tool, std::string_view format, std::string_view why) {
  return Error(absl::StatusCode::kInvalidArgument, "TOOL_NOT_HELD",
               absl::StrCat("no answer can be held to calls of the tool ", QuotedText(tool),
                            " as the format ", std::string(format),
                            " writes them: ", std::string(why)))
      .Fact("field", "tools")
      .Hint("name or describe the tool otherwise, or leave tool_choice and strict out");
}

}  // namespace strata
