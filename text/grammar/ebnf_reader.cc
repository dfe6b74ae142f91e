// Clients' grammars: EBNF as llama.cpp (GBNF) and XGrammar read it.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/hex_digit.h"
#include "common/status.h"
#include "text/grammar/constraint.h"
#include "text/grammar/schema_errors.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr char32_t kEnd = 0;
constexpr std::string_view kRoot = "root";

bool IsNameCharacter(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

absl::Status InvalidGrammar(std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "GRAMMAR_INVALID",
               absl::StrCat("the grammar ", std::string(what)))
      .Hint("write it as llama.cpp's GBNF: root ::= \"yes\" | \"no\"");
}

absl::Status UnsupportedGrammar(size_t line, std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "GRAMMAR_UNSUPPORTED",
               absl::StrCat("the grammar has ", std::string(what), " in line ", line,
                            ", which is not supported"))
      .Hint("say it by rules, texts, classes and counts alone");
}

// Lark divides name and body by one colon.
bool LooksLikeLark(std::string_view text) {
  bool rule = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    line = line.substr(0, std::min(line.find('#'), line.find("//")));
    if (line.find("::=") != std::string_view::npos) {
      return false;
    }
    const size_t colon = line.find(':');
    const size_t begin = line.find_first_not_of(" \t?!");
    if (colon == std::string_view::npos || begin == std::string_view::npos || begin >= colon) {
      continue;
    }
    rule = rule || std::ranges::all_of(line.substr(begin, colon - begin), [](char c) {
             return IsNameCharacter(static_cast<unsigned char>(c)) || c == ' ';
           });
  }
  return rule;
}

// Recursive descent over the grammar's characters.
class EbnfReader {
 public:
  EbnfReader(std::string_view text, const GrammarLimits& limits) : limits_(limits) {
    for (size_t at = 0; at < text.size();) {
      text_.push_back(NextChar(text, &at));
    }
  }

  absl::StatusOr<Grammar> Read() {
    SkipBlanks();
    while (at_ < text_.size()) {
      RETURN_IF_ERROR(Rule());
    }
    const auto root = rules_.find(std::string(kRoot));
    if (root == rules_.end()) {
      return InvalidGrammar("has no rule \"root\"");
    }
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) {
        return InvalidGrammar(absl::StrCat("names the rule ", QuotedText(name), " in line ",
                                           rule.line, " and does not say what it is"));
      }
    }
    grammar_.set_root(root->second.number);
    return std::move(grammar_);
  }

 private:
  struct NamedRule {
    size_t number = 0;
    size_t line = 0;  // Where it was named first.
    bool defined = false;
  };

  char32_t Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : kEnd;
  }
  bool Take(char32_t c) {
    const bool here = at_ < text_.size() && text_[at_] == c;
    at_ += here ? 1 : 0;
    return here;
  }
  absl::Status Wrong(std::string_view what) const {
    return InvalidGrammar(absl::StrCat("is wrong in line ", line_, ": ", std::string(what)));
  }

  // White space and comments.
  void SkipBlanks() {
    while (at_ < text_.size()) {
      const char32_t c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        line_ += c == '\n' ? 1 : 0;
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string Name() {
    std::string name;
    while (IsNameCharacter(Peek())) {
      name += static_cast<char>(text_[at_++]);
    }
    return name;
  }

  // Whether "NAME ::=" stands here, which ends the rule before it.
  bool AtRule() const {
    size_t ahead = 0;
    while (IsNameCharacter(Peek(ahead))) {
      ++ahead;
    }
    if (ahead == 0) {
      return false;
    }
    while (Peek(ahead) == ' ' || Peek(ahead) == '\t') {
      ++ahead;
    }
    return Peek(ahead) == ':' && Peek(ahead + 1) == ':' && Peek(ahead + 2) == '=';
  }

  NamedRule& RuleOf(const std::string& name) {
    const auto [found, added] = rules_.try_emplace(name);
    if (added) {
      found->second = {grammar_.AddRule("rule"), line_, false};
    }
    return found->second;
  }

  absl::Status Rule() {
    if (!AtRule()) {
      return Wrong("a rule is NAME ::= BODY");
    }
    NamedRule& rule = RuleOf(Name());
    if (rule.defined) {
      return Wrong("the rule is there already");
    }
    rule.defined = true;
    const size_t number = rule.number;
    SkipBlanks();
    at_ += 3;  // "::=".
    ASSIGN_OR_RETURN(GrammarExpr body, Choice());
    grammar_.SetBody(number, std::move(body));
    return grammar_.CheckSize(limits_);
  }

  absl::StatusOr<GrammarExpr> Choice() {
    if (++depth_ > limits_.max_pattern_depth) {
      return SchemaTooComplex("groups of a grammar within groups", limits_.max_pattern_depth);
    }
    std::vector<GrammarExpr> ways;
    do {
      std::vector<GrammarExpr> parts;
      SkipBlanks();
      while (at_ < text_.size() && Peek() != '|' && Peek() != ')' && !AtRule()) {
        ASSIGN_OR_RETURN(GrammarExpr part, Counted());
        parts.push_back(std::move(part));
        SkipBlanks();
      }
      ways.push_back(GrammarExpr::Sequence(std::move(parts)));
    } while (Take('|'));
    --depth_;
    if (depth_ == 0 && Peek() == ')') {
      return Wrong("\")\" closes a group that is not open");
    }
    return GrammarExpr::Choice(std::move(ways));
  }

  absl::StatusOr<GrammarExpr> Counted() {
    ASSIGN_OR_RETURN(GrammarExpr expr, Item());
    for (size_t counts = 0;; ++counts) {
      // Blanks may stand before a count, but line ends not: it belongs to what is on its line.
      while (Peek() == ' ' || Peek() == '\t') ++at_;
      size_t min = 0;
      size_t max = GrammarExpr::kNoLimit;
      if (Take('*')) {
      } else if (Take('+')) {
        min = 1;
      } else if (Take('?')) {
        max = 1;
      } else if (Take('{')) {
        RETURN_IF_ERROR(Bounds(&min, &max));
      } else {
        return expr;
      }
      if (counts >= limits_.max_pattern_depth) {
        return SchemaTooComplex("counts of counts in a grammar", limits_.max_pattern_depth);
      }
      expr = max == 0 ? GrammarExpr::EmptyText() : GrammarExpr::Repeat(std::move(expr), min, max);
    }
  }

  // Behind "{": N, N,M, N, or ,M, and "}".
  absl::Status Bounds(size_t* min, size_t* max) {
    const auto number = [this](size_t* out) {
      while (Peek() == ' ') ++at_;
      const size_t begin = at_;
      size_t value = 0;
      while (Peek() >= '0' && Peek() <= '9') {
        value = std::min<size_t>(value * 10 + (text_[at_++] - '0'), limits_.max_count + 1);
      }
      const bool there = at_ > begin;
      if (there) *out = value;
      while (Peek() == ' ') ++at_;
      return there;
    };
    const bool has_min = number(min);
    if (Take(',')) {
      if (!number(max) && !has_min) {
        return Wrong("\"{,}\" counts nothing");
      }
    } else {
      *max = *min;
    }
    if (!Take('}') || (!has_min && *max == *min) || *max < *min) {
      return Wrong("a count is {N}, {N,} or {N,M}");
    }
    if (*min > limits_.max_count || (*max != GrammarExpr::kNoLimit && *max > limits_.max_count)) {
      return SchemaTooComplex("repetitions", limits_.max_count);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<GrammarExpr> Item() {
    if (Take('"')) {
      return Text();
    }
    if (Take('[')) {
      return Class();
    }
    if (Take('(')) {
      if (Peek() == '=') {
        return UnsupportedGrammar(line_, "a lookahead (=...)");
      }
      ASSIGN_OR_RETURN(GrammarExpr group, Choice());
      if (!Take(')')) {
        return Wrong("a group is not closed");
      }
      return group;
    }
    if (Peek() == '<' || (Peek() == '!' && Peek(1) == '<')) {
      return UnsupportedGrammar(line_, "a token <...>");
    }
    if (Peek() == '.' && !IsNameCharacter(Peek(1))) {
      ++at_;
      return GrammarExpr::Class(CharSet::All());
    }
    if (!IsNameCharacter(Peek())) {
      std::string c;
      AppendUtf8(Peek(), &c);
      return Wrong(absl::StrCat(QuotedText(c), " begins no text, class, group or name of a rule"));
    }
    const std::string name = Name();
    if (Peek() == '(') {
      return UnsupportedGrammar(line_, absl::StrCat("the macro ", name, "()"));
    }
    return GrammarExpr::Rule(RuleOf(name).number);
  }

  absl::StatusOr<GrammarExpr> Text() {
    std::string text;
    while (!Take('"')) {
      if (at_ >= text_.size() || Peek() == '\n') {
        return Wrong("a text is not closed on its line");
      }
      ASSIGN_OR_RETURN(const char32_t c, Character());
      AppendUtf8(c, &text);
    }
    return GrammarExpr::Literal(std::move(text));
  }

  absl::StatusOr<GrammarExpr> Class() {
    const bool opposite = Take('^');
    std::vector<CharSet::Range> ranges;
    while (!Take(']')) {
      if (at_ >= text_.size() || Peek() == '\n') {
        return Wrong("a class is not closed on its line");
      }
      ASSIGN_OR_RETURN(const char32_t low, Character());
      char32_t high = low;
      if (Peek() == '-' && Peek(1) != ']' && Peek(1) != kEnd) {
        ++at_;
        ASSIGN_OR_RETURN(high, Character());
      }
      if (high < low) {
        return Wrong("a range of a class ends before it begins");
      }
      ranges.push_back({low, high});
    }
    const CharSet set(std::move(ranges));
    return GrammarExpr::Class(opposite ? set.Complement() : set);
  }

  // One character of a text or a class, as it is or escaped.
  absl::StatusOr<char32_t> Character() {
    if (!Take('\\')) {
      return text_[at_++];
    }
    const char32_t c = Peek();
    if (at_ < text_.size()) ++at_;
    switch (c) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case 'x':
        return Hex(2);
      case 'u':
        return Hex(4);
      case 'U':
        return Hex(8);
      default:
        break;
    }
    constexpr std::u32string_view kThemselves = U"\"\\/'[]^-(){}|*+?.$";
    if (kThemselves.find(c) == std::u32string_view::npos || c == kEnd) {
      return Wrong("an escape that is not known");
    }
    return c;
  }

  absl::StatusOr<char32_t> Hex(size_t digits) {
    uint64_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const int digit = HexDigit(Peek());
      if (digit < 0) {
        return Wrong("an escape has too few hexadecimal digits");
      }
      value = value * 16 + static_cast<uint64_t>(digit);
      ++at_;
    }
    if (value > kLastCharacter || (value >= 0xD800 && value <= 0xDFFF)) {
      return Wrong("an escape is no character of Unicode");
    }
    return static_cast<char32_t>(value);
  }

  const GrammarLimits& limits_;
  std::vector<char32_t> text_;
  size_t at_ = 0;
  size_t line_ = 1;
  size_t depth_ = 0;
  std::map<std::string, NamedRule> rules_;
  Grammar grammar_;
};

}  // namespace

absl::StatusOr<Grammar> GrammarOfEbnf(std::string_view text, const GrammarLimits& limits) {
  if (text.size() > limits.max_source_bytes) {
    return SchemaTooComplex("bytes of a grammar", limits.max_source_bytes);
  }
  if (FirstInvalidUtf8(text)) {
    return InvalidGrammar("is no UTF-8");
  }
  if (LooksLikeLark(text)) {
    return InvalidGrammar("is Lark's, which is not supported: rules are NAME ::= BODY");
  }
  ASSIGN_OR_RETURN(const Grammar grammar, EbnfReader(text, limits).Read());
  Grammar pruned = grammar.Pruned();
  if (pruned.IsEmpty()) {
    return InvalidGrammar("has no text: each way through its rules leads back to them");
  }
  return pruned;
}

}  // namespace strata
