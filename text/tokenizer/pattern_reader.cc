#include "text/tokenizer/pattern_reader.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

// White_Space and the rest, as the inside of a class.
constexpr char kSpaces[] =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr char kNoSpaces[] =
    R"(\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF})"
    R"(\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

bool PatternReader::Take(std::string_view text) {
  if (pattern_.substr(at_, text.size()) != text) {
    return false;
  }
  at_ += text.size();
  return true;
}

absl::Status PatternReader::Invalid(std::string_view what) const {
  return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
               absl::StrCat("split pattern \"", std::string(pattern_), "\" ", std::string(what),
                            " (at byte ", at_, ")"));
}
absl::Status PatternReader::Unsupported(std::string_view what) const {
  return Error(absl::StatusCode::kUnimplemented, "TOKENIZER_UNSUPPORTED",
               absl::StrCat("split pattern \"", std::string(pattern_), "\": ", std::string(what),
                            " is not supported yet"));
}

char32_t PatternReader::NextCharacter() { return NextChar(pattern_, &at_); }

std::optional<unsigned> PatternReader::Number() {
  if (Peek() < '0' || Peek() > '9') {
    return std::nullopt;
  }
  unsigned value = 0;
  for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
    value = std::min(value * 10 + static_cast<unsigned>(Peek() - '0'), 1000000u);
  }
  return value;
}

std::optional<PatternReader::Repeats> PatternReader::Interval() {
  const size_t start = at_;
  if (!Take("{")) {
    return std::nullopt;
  }
  const std::optional<unsigned> low = Number();
  std::optional<unsigned> high = low;
  if (Take(",")) {
    high = Number();
    if (!low && !high) {
      at_ = start;
      return std::nullopt;
    }
  }
  if (!Take("}") || (!low && !high)) {
    at_ = start;
    return std::nullopt;
  }
  return std::make_pair(low.value_or(0), high);
}

absl::StatusOr<std::string> PatternReader::Property(bool negated) {
  const size_t close = pattern_.find('}', at_);
  if (!Take("{") || close == std::string_view::npos) {
    return Invalid("has a \\p without a property in braces");
  }
  negated ^= Take("^");
  const std::string name(pattern_.substr(at_, close - at_));
  at_ = close + 1;
  for (const char c : name) {
    if (!IsLetter(c) && c != '_' && c != ' ') {
      return Invalid(absl::StrCat("has the property \"", name, "\""));
    }
  }
  static constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
      {"Letter", "L"},
      {"Mark", "M"},
      {"Number", "N"},
      {"Punctuation", "P"},
      {"Symbol", "S"},
      {"Separator", "Z"},
      {"Other", "C"},
      {"Any", "Any"},
      {"Uppercase_Letter", "Lu"},
      {"Lowercase_Letter", "Ll"},
      {"Titlecase_Letter", "Lt"},
      {"Modifier_Letter", "Lm"},
      {"Other_Letter", "Lo"},
      {"Decimal_Number", "Nd"},
  };
  std::string property = name.size() <= 2 ? name : absl::StrCat("sc:", name);
  for (const auto& [name_long, name_short] : kLongNames) {
    if (name == name_long) {
      property = name_short;
    }
  }
  return absl::StrCat(negated ? "\\P{" : "\\p{", property, "}");
}

absl::StatusOr<char32_t> PatternReader::Hex(char kind) {
  const bool braces = kind == 'x' && Take("{");
  const int most = braces ? 8 : kind == 'x' ? 2 : 4;
  uint32_t value = 0;
  int digits = 0;
  for (; digits < most; ++digits, ++at_) {
    const char c = Peek();
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) {
      break;
    }
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  if (digits == 0 || (kind == 'u' && digits != 4) || (braces && !Take("}")) || value > 0x10FFFF ||
      (value >= 0xD800 && value < 0xE000) || (!braces && value > 0x7F && kind == 'x')) {
    return Invalid("has a code that is no character");
  }
  return static_cast<char32_t>(value);
}

absl::StatusOr<std::string> PatternReader::ClassEscape(char c) {
  switch (c) {
    case 's':
      return kSpaces;
    case 'S':
      return kNoSpaces;
    case 'd':
      return "\\p{Nd}";
    case 'D':
      return "\\P{Nd}";
    case 'w':
      return "\\p{L}\\p{M}\\p{N}\\p{Pc}";
    case 'h':
      return "0-9a-fA-F";
    case 'p':
    case 'P':
      return Property(c == 'P');
    default:
      return "";
  }
}

absl::StatusOr<char32_t> PatternReader::CharacterEscape(char c) {
  switch (c) {
    case 'n':
      return U'\n';
    case 'r':
      return U'\r';
    case 't':
      return U'\t';
    case 'f':
      return U'\f';
    case 'v':
      return U'\v';
    case 'a':
      return U'\a';
    case 'e':
      return U'\x1B';
    case 'x':
    case 'u':
      return Hex(c);
    default:
      break;
  }
  if (IsLetter(c) || (c >= '0' && c <= '9')) {
    return Unsupported(absl::StrCat("\"\\", std::string(1, c), "\""));
  }
  --at_;
  return NextChar(pattern_, &at_);  // Punctuation stands for itself.
}

}  // namespace strata
