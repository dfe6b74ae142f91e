#include "text/grammar/regex_parser.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/hex_digit.h"
#include "common/status.h"
#include "text/grammar/regex_anchors.h"
#include "text/grammar/schema_errors.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr size_t kMaxCount = 100'000;

CharSet DecimalDigits() { return CharSet::Of('0', '9'); }
CharSet WordCharacters() { return CharSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
CharSet Spaces() {
  return CharSet({{0x09, 0x0D},
                  {' ', ' '},
                  {0xA0, 0xA0},
                  {0x1680, 0x1680},
                  {0x2000, 0x200A},
                  {0x2028, 0x2029},
                  {0x202F, 0x202F},
                  {0x205F, 0x205F},
                  {0x3000, 0x3000},
                  {0xFEFF, 0xFEFF}});
}
CharSet LineEnds() { return CharSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}); }

// Recursive descent over the pattern's characters.
class PatternParser {
 public:
  PatternParser(std::string_view pattern, const GrammarLimits& limits) : limits_(limits) {
    for (size_t at = 0; at < pattern.size();) {
      text_.push_back(NextChar(pattern, &at));
    }
  }

  absl::StatusOr<RegexPtr> Parse() {
    ASSIGN_OR_RETURN(RegexPtr result, Alternatives());
    if (!AtEnd()) {
      return absl::InvalidArgumentError("closes a group that is not open");
    }
    return result;
  }

 private:
  bool AtEnd() const { return at_ == text_.size(); }
  bool Next(char32_t c) const { return !AtEnd() && text_[at_] == c; }
  bool Take(char32_t c) {
    const bool here = Next(c);
    at_ += here ? 1 : 0;
    return here;
  }

  absl::StatusOr<RegexPtr> Alternatives() {
    if (++depth_ > limits_.max_pattern_depth) {
      return SchemaTooComplex("groups of a pattern within groups", limits_.max_pattern_depth);
    }
    std::vector<RegexPtr> alternatives;
    do {
      std::vector<RegexPtr> parts;
      while (!AtEnd() && !Next('|') && !Next(')')) {
        ASSIGN_OR_RETURN(RegexPtr part, Part());
        parts.push_back(std::move(part));
      }
      alternatives.push_back(RegexConcat(std::move(parts)));
    } while (Take('|'));
    --depth_;
    return RegexAlternate(std::move(alternatives));
  }

  absl::StatusOr<RegexPtr> Part() {
    if (Take('^')) {
      return std::make_shared<RegexNode>(RegexNode{.kind = RegexNode::Kind::kBegin});
    }
    if (Take('$')) {
      return std::make_shared<RegexNode>(RegexNode{.kind = RegexNode::Kind::kEnd});
    }
    ASSIGN_OR_RETURN(RegexPtr atom, Atom());
    return Counted(std::move(atom));
  }

  absl::StatusOr<RegexPtr> Atom() {
    if (Take('(')) {
      return Group();
    }
    if (Take('[')) {
      ASSIGN_OR_RETURN(CharSet set, Class());
      return RegexSet(std::move(set));
    }
    if (Take('.')) {
      return RegexSet(LineEnds().Complement());
    }
    if (Next('*') || Next('+') || Next('?')) {
      return absl::InvalidArgumentError("counts what is not there");
    }
    if (Take('\\')) {
      ASSIGN_OR_RETURN(CharSet set, Escape(false));
      return RegexSet(std::move(set));
    }
    return RegexSet(CharSet::Of(text_[at_++]));
  }

  absl::StatusOr<RegexPtr> Group() {
    if (Take('?')) {
      if (Take('<')) {
        if (Next('=') || Next('!')) {
          return absl::UnimplementedError("looks behind");
        }
        while (!AtEnd() && !Next('>')) {
          ++at_;
        }
        if (!Take('>')) {
          return absl::InvalidArgumentError("has a group whose name does not end");
        }
      } else if (Next('=') || Next('!')) {
        return absl::UnimplementedError("looks ahead");
      } else if (!Take(':')) {
        return absl::UnimplementedError("has a group of an unknown kind");
      }
    }
    ASSIGN_OR_RETURN(RegexPtr inner, Alternatives());
    if (!Take(')')) {
      return absl::InvalidArgumentError("has a group that does not end");
    }
    return inner;
  }

  absl::StatusOr<RegexPtr> Counted(RegexPtr atom) {
    size_t min = 1;
    size_t max = 1;
    bool counted = true;
    if (Take('*')) {
      min = 0;
      max = RegexNode::kNoLimit;
    } else if (Take('+')) {
      max = RegexNode::kNoLimit;
    } else if (Take('?')) {
      min = 0;
    } else if (Next('{')) {
      ASSIGN_OR_RETURN(counted, Count(&min, &max));
    } else {
      counted = false;
    }
    if (!counted) {
      return atom;
    }
    if (max < min) {
      return absl::InvalidArgumentError("has a count whose end is below its beginning");
    }
    Take('?');
    if (Next('*') || Next('+') || Next('?')) {
      return absl::InvalidArgumentError("counts a count");
    }
    return RegexRepeat(std::move(atom), min, max);
  }

  // Whether a count stands here, and is taken; a brace that begins none is a character.
  absl::StatusOr<bool> Count(size_t* min, size_t* max) {
    size_t at = at_ + 1;
    const auto number = [&]() -> absl::StatusOr<std::optional<size_t>> {
      std::optional<size_t> value;
      for (; at < text_.size() && text_[at] >= '0' && text_[at] <= '9'; ++at) {
        value = value.value_or(0) * 10 + (text_[at] - '0');
        if (*value > kMaxCount) {
          return SchemaTooComplex("repetitions in a pattern", kMaxCount);
        }
      }
      return value;
    };
    ASSIGN_OR_RETURN(const std::optional<size_t> low, number());
    if (!low) {
      return false;
    }
    std::optional<size_t> high = low;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      ASSIGN_OR_RETURN(high, number());
    }
    if (at == text_.size() || text_[at] != '}') {
      return false;
    }
    at_ = at + 1;
    *min = *low;
    *max = high.value_or(RegexNode::kNoLimit);
    return true;
  }

  absl::StatusOr<CharSet> Class() {
    const bool inverted = Take('^');
    std::vector<CharSet::Range> ranges;
    const auto add = [&ranges](const CharSet& set) {
      ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
    };
    while (true) {
      if (AtEnd()) {
        return absl::InvalidArgumentError("has a class that does not end");
      }
      if (Take(']')) {
        break;
      }
      ASSIGN_OR_RETURN(const CharSet low, ClassItem());
      if (!Next('-') || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') {
        add(low);
        continue;
      }
      ++at_;
      ASSIGN_OR_RETURN(const CharSet high, ClassItem());
      if (!IsOne(low) || !IsOne(high)) {
        return absl::InvalidArgumentError("has a range between classes");
      }
      if (high.ranges()[0].low < low.ranges()[0].low) {
        return absl::InvalidArgumentError("has a range whose end is below its beginning");
      }
      ranges.push_back({low.ranges()[0].low, high.ranges()[0].low});
    }
    CharSet set(std::move(ranges));
    return inverted ? set.Complement() : set;
  }

  static bool IsOne(const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].low == set.ranges()[0].high;
  }

  absl::StatusOr<CharSet> ClassItem() {
    if (Take('\\')) {
      return Escape(true);
    }
    return CharSet::Of(text_[at_++]);
  }

  // Behind the backslash.
  absl::StatusOr<CharSet> Escape(bool in_class) {
    if (AtEnd()) {
      return absl::InvalidArgumentError("ends in a backslash");
    }
    const char32_t c = text_[at_++];
    switch (c) {
      case 'd':
        return DecimalDigits();
      case 'D':
        return DecimalDigits().Complement();
      case 'w':
        return WordCharacters();
      case 'W':
        return WordCharacters().Complement();
      case 's':
        return Spaces();
      case 'S':
        return Spaces().Complement();
      case 't':
        return CharSet::Of('\t');
      case 'n':
        return CharSet::Of('\n');
      case 'v':
        return CharSet::Of('\v');
      case 'f':
        return CharSet::Of('\f');
      case 'r':
        return CharSet::Of('\r');
      case 'b':
        if (in_class) {
          return CharSet::Of('\b');
        }
        return absl::UnimplementedError("asks for the border of a word");
      case 'B':
        return absl::UnimplementedError("asks for the border of a word");
      case 'p':
      case 'P':
        return absl::UnimplementedError("names a property of Unicode");
      case 'c': {
        if (AtEnd() || text_[at_] > 'z' || (text_[at_] | 0x20) < 'a' || (text_[at_] | 0x20) > 'z') {
          return absl::InvalidArgumentError("has \\c without a letter");
        }
        return CharSet::Of(text_[at_++] & 0x1F);
      }
      case 'x':
        return Hex(2);
      case 'u':
        return UnicodeEscape();
      case '0':
        if (AtEnd() || text_[at_] < '0' || text_[at_] > '9') {
          return CharSet::Of(char32_t{0});
        }
        return absl::InvalidArgumentError("has an octal escape");
      case 'k':
        return absl::UnimplementedError("refers to a group");
      default:
        break;
    }
    if (c >= '1' && c <= '9') {
      return absl::UnimplementedError("refers to a group");
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      return absl::InvalidArgumentError("has an unknown escape");
    }
    return CharSet::Of(c);
  }

  absl::StatusOr<CharSet> Hex(int digits) {
    ASSIGN_OR_RETURN(const char32_t value, HexNumber(digits));
    return Character(value);
  }

  absl::StatusOr<char32_t> HexNumber(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const int digit = AtEnd() ? -1 : HexDigit(text_[at_]);
      if (digit < 0) {
        return absl::InvalidArgumentError("has an escape with too few digits");
      }
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    return value;
  }

  static absl::StatusOr<CharSet> Character(char32_t value) {
    CharSet set = CharSet::Of(value);
    if (set.empty()) {
      return absl::UnimplementedError("has half a surrogate pair, or what is beyond Unicode");
    }
    return set;
  }

  absl::StatusOr<CharSet> UnicodeEscape() {
    if (Take('{')) {
      char32_t value = 0;
      size_t digits = 0;
      for (; !AtEnd() && HexDigit(text_[at_]) >= 0 && digits <= 8; ++digits) {
        value = value * 16 + static_cast<char32_t>(HexDigit(text_[at_++]));
      }
      if (digits == 0 || digits > 8 || !Take('}')) {
        return absl::InvalidArgumentError("has an escape that is no character");
      }
      return Character(value);
    }
    ASSIGN_OR_RETURN(const char32_t high, HexNumber(4));
    if (high >= 0xD800 && high <= 0xDBFF && Next('\\') && at_ + 1 < text_.size() &&
        text_[at_ + 1] == 'u') {
      at_ += 2;
      ASSIGN_OR_RETURN(const char32_t low, HexNumber(4));
      if (low < 0xDC00 || low > 0xDFFF) {
        return absl::UnimplementedError("has half a surrogate pair, or what is beyond Unicode");
      }
      return Character(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
    }
    return Character(high);
  }

  const GrammarLimits& limits_;
  std::u32string text_;
  size_t at_ = 0;
  size_t depth_ = 0;
};

}  // namespace

absl::StatusOr<RegexPtr> ParsePattern(std::string_view pattern, PatternUse use,
                                      WorkBudget* budget) {
  const GrammarLimits& limits = budget->limits();
  if (pattern.size() > limits.max_source_bytes) {
    return SchemaTooComplex("bytes of a pattern", limits.max_source_bytes);
  }
  if (FirstInvalidUtf8(pattern)) {
    return absl::InvalidArgumentError("is no UTF-8");
  }
  ASSIGN_OR_RETURN(const RegexPtr parsed, PatternParser(pattern, limits).Parse());
  return ResolveAnchors(parsed, use, budget);
}

absl::StatusOr<RegexPtr> ParsePattern(std::string_view pattern, PatternUse use,
                                      const GrammarLimits& limits) {
  WorkBudget budget(limits);
  return ParsePattern(pattern, use, &budget);
}

}  // namespace strata
