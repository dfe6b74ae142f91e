#include "text/tokenizer/regex_syntax.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr size_t kMaxPatternBytes = 64 * 1024;
constexpr int kMaxDepth = 50;
constexpr unsigned kMaxRepeat = 1000;

// White_Space and the rest, as the inside of a class.
constexpr char kSpaces[] =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr char kNoSpaces[] =
    R"(\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF})"
    R"(\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

// \w, which PCRE2's \b does not mean: it leaves out marks.
constexpr char kWord[] = R"([\p{L}\p{M}\p{N}\p{Pc}])";

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string CodePoint(char32_t c) { return absl::StrFormat("\\x{%X}", static_cast<uint32_t>(c)); }

// A class, or a part of one: ranges and properties, and classes inside of it.
struct ClassPart {
  std::string items;
  std::vector<std::string> nested;  // Each an atom.
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    ASSIGN_OR_RETURN(std::string out, Alternatives(0));
    if (!AtEnd()) {
      return Invalid("has a ) too many");
    }
    return out;
  }

 private:
  struct Atom {
    std::string text;
    bool one_character = false;  // Matches exactly one character.
    bool repeatable = true;
  };

  bool AtEnd() const { return at_ >= pattern_.size(); }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool Take(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) {
      return false;
    }
    at_ += text.size();
    return true;
  }
  absl::Status Invalid(std::string_view what) const {
    return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
                 absl::StrCat("split pattern \"", std::string(pattern_), "\" ", std::string(what),
                              " (at byte ", at_, ")"));
  }
  absl::Status Unsupported(std::string_view what) const {
    return Error(absl::StatusCode::kUnimplemented, "TOKENIZER_UNSUPPORTED",
                 absl::StrCat("split pattern \"", std::string(pattern_), "\": ", std::string(what),
                              " is not supported yet"));
  }

  absl::StatusOr<std::string> Alternatives(int depth) {
    if (depth > kMaxDepth) {
      return Invalid("is nested too deeply");
    }
    std::string out;
    while (!AtEnd() && Peek() != ')') {
      if (Take("|")) {
        out += '|';
        continue;
      }
      ASSIGN_OR_RETURN(Atom atom, ParseAtom(depth));
      RETURN_IF_ERROR(Quantifiers(&atom));
      out += atom.text;
    }
    return out;
  }

  absl::StatusOr<Atom> ParseAtom(int depth) {
    switch (Peek()) {
      case '(':
        return Group(depth);
      case '[': {
        ++at_;
        ASSIGN_OR_RETURN(std::string text, Class(depth));
        return Atom{std::move(text), true};
      }
      case '\\':
        return Escape();
      case '^':
      case '$':
        return Atom{std::string(1, pattern_[at_++]), false, false};
      case '.':
        ++at_;
        return Atom{".", true};
      case '*':
      case '+':
      case '?':
        return Invalid("repeats nothing");
      default: {
        const char32_t c = NextChar(pattern_, &at_);
        return Atom{CodePoint(c), true};
      }
    }
  }

  absl::StatusOr<Atom> Group(int depth) {
    static constexpr std::string_view kOpenings[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    std::string opening;
    for (const std::string_view candidate : kOpenings) {
      if (Take(candidate)) {
        opening = candidate;
        break;
      }
    }
    bool repeatable = true;
    if (opening.empty() && Peek(1) == '?') {
      ASSIGN_OR_RETURN(opening, Options());
      if (opening.back() == ')') {  // (?i): from here to the end of the group.
        return Atom{std::move(opening), false, false};
      }
    } else if (opening.empty()) {
      ++at_;
      opening = "(?:";  // What a group captures is never asked for.
    } else {
      repeatable = opening == "(?:" || opening == "(?>";
    }
    ASSIGN_OR_RETURN(std::string inside, Alternatives(depth + 1));
    if (!Take(")")) {
      return Invalid("lacks a )");
    }
    return Atom{absl::StrCat(opening, inside, ")"), false, repeatable};
  }

  // (?i:  (?i)  (?-i:  (?m:  where Ruby's m is dot-matches-newline.
  absl::StatusOr<std::string> Options() {
    std::string opening = "(?";
    size_t i = at_ + 2;
    for (; i < pattern_.size(); ++i) {
      const char c = pattern_[i];
      if (c == 'i' || c == '-') {
        opening += c;
      } else if (c == 'm') {
        opening += 's';
      } else if (c == ':' || c == ')') {
        at_ = i + 1;
        return opening + c;
      } else {
        break;
      }
    }
    return Unsupported(absl::StrCat("\"", std::string(pattern_.substr(at_, i + 1 - at_)), "\""));
  }

  std::optional<unsigned> Number() {
    if (Peek() < '0' || Peek() > '9') {
      return std::nullopt;
    }
    unsigned value = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      value = std::min(value * 10 + static_cast<unsigned>(Peek() - '0'), 1000000u);
    }
    return value;
  }

  // {n} {n,} {n,m} {,m}; nothing, and nothing taken, when it is no interval.
  std::optional<std::pair<unsigned, std::optional<unsigned>>> Interval() {
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

  absl::Status Quantifiers(Atom* atom) {
    while (true) {
      const char c = Peek();
      if (c == '*' || c == '+' || c == '?') {
        if (!atom->repeatable) {
          return Invalid("repeats what has no width");
        }
        ++at_;
        atom->text += c;
        if (Peek() == '?' || Peek() == '+') {
          atom->text += pattern_[at_++];
        }
      } else if (c == '{') {
        const auto interval = Interval();
        if (!interval) {
          return absl::OkStatus();  // A literal brace.
        }
        RETURN_IF_ERROR(ApplyInterval(*interval, atom));
      } else {
        return absl::OkStatus();
      }
      if (Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{') {
        atom->text = absl::StrCat("(?:", atom->text, ")");
        atom->one_character = false;
      }
    }
  }

  absl::Status ApplyInterval(std::pair<unsigned, std::optional<unsigned>> interval, Atom* atom) {
    const auto [low, high] = interval;
    if (!atom->repeatable || low > kMaxRepeat || high.value_or(0) > kMaxRepeat ||
        (high && *high < low)) {
      return Invalid("has a repetition that is not possible");
    }
    const bool exact = high && *high == low;
    if (Peek() == '+' && low <= 1 && high.value_or(1) >= 1 && atom->one_character) {
      // (X{1,n})+ finds what X+ finds, in the same order, without a group to step back into.
      ++at_;
      atom->text += low == 0 ? '*' : '+';
      return absl::OkStatus();
    }
    atom->text += exact ? absl::StrCat("{", low, "}")
                        : absl::StrCat("{", low, ",", high ? absl::StrCat(*high) : "", "}");
    if (Peek() == '?' && !exact) {  // Lazy; {n}? is "at most once" and falls out of the caller.
      ++at_;
      atom->text += '?';
    }
    return absl::OkStatus();
  }

  // \p{...}, \P{...}, \p{^...} behind the "\p".
  absl::StatusOr<std::string> Property(bool negated) {
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

  // One code point behind "\x" or "\u".
  absl::StatusOr<char32_t> Hex(char kind) {
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

  // The class items that the escape `c`, already taken, stands for; "" if it stands for none.
  absl::StatusOr<std::string> ClassEscape(char c) {
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

  // The character that the escape `c`, already taken, stands for.
  absl::StatusOr<char32_t> CharacterEscape(char c) {
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

  absl::StatusOr<Atom> Escape() {
    ++at_;
    if (AtEnd()) {
      return Invalid("ends in a backslash");
    }
    const char c = pattern_[at_++];
    if (c == 'b') {
      return Atom{
          absl::StrCat("(?:(?<=", kWord, ")(?!", kWord, ")|(?<!", kWord, ")(?=", kWord, "))"),
          false, false};
    }
    if (c == 'B') {
      return Atom{
          absl::StrCat("(?:(?<=", kWord, ")(?=", kWord, ")|(?<!", kWord, ")(?!", kWord, "))"),
          false, false};
    }
    if (c == 'A' || c == 'z' || c == 'Z' || c == 'G') {
      return Atom{absl::StrCat("\\", std::string(1, c)), false, false};
    }
    if (c == 'W') {
      return Atom{"[^\\p{L}\\p{M}\\p{N}\\p{Pc}]", true};
    }
    ASSIGN_OR_RETURN(std::string items, ClassEscape(c));
    if (!items.empty()) {
      const bool bare = c == 'p' || c == 'P' || c == 'd' || c == 'D';
      return Atom{bare ? std::move(items) : absl::StrCat("[", items, "]"), true};
    }
    ASSIGN_OR_RETURN(const char32_t character, CharacterEscape(c));
    return Atom{CodePoint(character), true};
  }

  static std::string PartAtom(const ClassPart& part) {
    if (part.nested.empty()) {
      return absl::StrCat("[", part.items, "]");
    }
    if (part.items.empty() && part.nested.size() == 1) {
      return part.nested[0];
    }
    std::string out = part.items.empty() ? "(?:" : absl::StrCat("(?:[", part.items, "]|");
    for (size_t i = 0; i < part.nested.size(); ++i) {
      absl::StrAppend(&out, i == 0 ? "" : "|", part.nested[i]);
    }
    return out + ")";
  }

  // Behind the "[".
  absl::StatusOr<std::string> Class(int depth) {
    if (depth > kMaxDepth) {
      return Invalid("is nested too deeply");
    }
    const bool negated = Take("^");
    std::vector<ClassPart> parts(1);
    bool first = true;
    while (first || !Take("]")) {
      if (AtEnd()) {
        return Invalid("lacks a ]");
      }
      first = false;
      if (Take("&&")) {
        parts.emplace_back();
      } else {
        RETURN_IF_ERROR(ClassItem(depth, &parts.back()));
      }
    }
    for (const ClassPart& part : parts) {
      if (part.items.empty() && part.nested.empty()) {
        return Invalid("has an intersection with nothing");
      }
    }
    if (parts.size() == 1 && parts[0].nested.empty()) {
      return absl::StrCat(negated ? "[^" : "[", parts[0].items, "]");
    }
    std::string out = "(?:";
    for (size_t i = 1; i < parts.size(); ++i) {
      absl::StrAppend(&out, "(?=", PartAtom(parts[i]), ")");
    }
    absl::StrAppend(&out, PartAtom(parts[0]), ")");
    return negated ? absl::StrCat("(?:(?!", out, ")[\\x{0}-\\x{10FFFF}])") : out;
  }

  absl::Status ClassItem(int depth, ClassPart* part) {
    if (Take("[:")) {
      return Unsupported("a POSIX class such as [:alpha:]");
    }
    if (Take("[")) {
      ASSIGN_OR_RETURN(std::string nested, Class(depth + 1));
      part->nested.push_back(std::move(nested));
      return absl::OkStatus();
    }
    char32_t low = 0;
    if (Take("\\")) {
      if (AtEnd()) {
        return Invalid("ends in a backslash");
      }
      const char c = pattern_[at_++];
      if (c == 'W') {
        part->nested.push_back("[^\\p{L}\\p{M}\\p{N}\\p{Pc}]");
        return absl::OkStatus();
      }
      ASSIGN_OR_RETURN(const std::string items, ClassEscape(c));
      if (!items.empty()) {
        part->items += items;
        return absl::OkStatus();
      }
      ASSIGN_OR_RETURN(low, CharacterEscape(c));
    } else {
      low = NextChar(pattern_, &at_);
    }
    if (Peek() != '-' || Peek(1) == ']' || Peek(1) == '\0' || Peek(1) == '[') {
      part->items += CodePoint(low);
      return absl::OkStatus();
    }
    ++at_;
    char32_t high = 0;
    if (Take("\\")) {
      if (AtEnd()) {
        return Invalid("ends in a backslash");
      }
      const char c = pattern_[at_++];
      ASSIGN_OR_RETURN(high, CharacterEscape(c));
    } else {
      high = NextChar(pattern_, &at_);
    }
    if (high < low) {
      return Invalid("has an empty range");
    }
    part->items += CodePoint(low) + "-" + CodePoint(high);
    return absl::OkStatus();
  }

  const std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<std::string> TranslatePattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
                 "a split pattern is longer than can be")
        .Limit(absl::StrCat("pattern_bytes=", kMaxPatternBytes));
  }
  if (const auto offset = FirstInvalidUtf8(pattern)) {
    return Error(absl::StatusCode::kInvalidArgument, "TOKENIZER_INVALID",
                 absl::StrCat("a split pattern is no UTF-8 at byte ", *offset));
  }
  return Translator(pattern).Run();
}

}  // namespace strata
