#include "text/tokenizer/regex_syntax.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "text/tokenizer/pattern_reader.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr size_t kMaxPatternBytes = 64 * 1024;
constexpr int kMaxDepth = 50;
constexpr unsigned kMaxRepeat = 1000;

// \w, which PCRE2's \b does not mean: it leaves out marks.
constexpr char kWord[] = R"([\p{L}\p{M}\p{N}\p{Pc}])";

std::string CodePoint(char32_t c) { return absl::StrFormat("\\x{%X}", static_cast<uint32_t>(c)); }

// A class, or a part of one: ranges and properties, and classes inside of it.
struct ClassPart {
  std::string items;
  std::vector<std::string> nested;  // Each an atom.
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : read_(pattern) {}

  absl::StatusOr<std::string> Run() {
    ASSIGN_OR_RETURN(std::string out, Alternatives(0));
    if (!read_.AtEnd()) {
      return read_.Invalid("has a ) too many");
    }
    return out;
  }

 private:
  struct Atom {
    std::string text;
    bool one_character = false;  // Matches exactly one character.
    bool repeatable = true;
  };

  absl::StatusOr<std::string> Alternatives(int depth) {
    if (depth > kMaxDepth) {
      return read_.Invalid("is nested too deeply");
    }
    std::string out;
    while (!read_.AtEnd() && read_.Peek() != ')') {
      if (read_.Take("|")) {
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
    switch (read_.Peek()) {
      case '(':
        return Group(depth);
      case '[': {
        read_.Skip();
        ASSIGN_OR_RETURN(std::string text, Class(depth));
        return Atom{std::move(text), true};
      }
      case '\\':
        return Escape();
      case '^':
      case '$':
        return Atom{std::string(1, read_.Next()), false, false};
      case '.':
        read_.Skip();
        return Atom{".", true};
      case '*':
      case '+':
      case '?':
        return read_.Invalid("repeats nothing");
      default: {
        const char32_t c = read_.NextCharacter();
        return Atom{CodePoint(c), true};
      }
    }
  }

  absl::StatusOr<Atom> Group(int depth) {
    static constexpr std::string_view kOpenings[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    std::string opening;
    for (const std::string_view candidate : kOpenings) {
      if (read_.Take(candidate)) {
        opening = candidate;
        break;
      }
    }
    bool repeatable = true;
    if (opening.empty() && read_.Peek(1) == '?') {
      ASSIGN_OR_RETURN(opening, Options());
      if (opening.back() == ')') {  // (?i): from here to the end of the group.
        return Atom{std::move(opening), false, false};
      }
    } else if (opening.empty()) {
      read_.Skip();
      opening = "(?:";  // What a group captures is never asked for.
    } else {
      repeatable = opening == "(?:" || opening == "(?>";
    }
    ASSIGN_OR_RETURN(std::string inside, Alternatives(depth + 1));
    if (!read_.Take(")")) {
      return read_.Invalid("lacks a )");
    }
    return Atom{absl::StrCat(opening, inside, ")"), false, repeatable};
  }

  // (?i:  (?i)  (?-i:  (?m:  where Ruby's m is dot-matches-newline.
  absl::StatusOr<std::string> Options() {
    std::string opening = "(?";
    const std::string_view rest = read_.Rest();
    size_t i = 2;
    for (; i < rest.size(); ++i) {
      const char c = rest[i];
      if (c == 'i' || c == '-') {
        opening += c;
      } else if (c == 'm') {
        opening += 's';
      } else if (c == ':' || c == ')') {
        read_.Skip(i + 1);
        return opening + c;
      } else {
        break;
      }
    }
    return read_.Unsupported(absl::StrCat("\"", std::string(rest.substr(0, i + 1)), "\""));
  }

  absl::Status Quantifiers(Atom* atom) {
    while (true) {
      const char c = read_.Peek();
      if (c == '*' || c == '+' || c == '?') {
        if (!atom->repeatable) {
          return read_.Invalid("repeats what has no width");
        }
        read_.Skip();
        atom->text += c;
        if (read_.Peek() == '?' || read_.Peek() == '+') {
          atom->text += read_.Next();
        }
      } else if (c == '{') {
        const auto interval = read_.Interval();
        if (!interval) {
          return absl::OkStatus();  // A literal brace.
        }
        RETURN_IF_ERROR(ApplyInterval(*interval, atom));
      } else {
        return absl::OkStatus();
      }
      if (read_.Peek() == '*' || read_.Peek() == '+' || read_.Peek() == '?' ||
          read_.Peek() == '{') {
        atom->text = absl::StrCat("(?:", atom->text, ")");
        atom->one_character = false;
      }
    }
  }

  absl::Status ApplyInterval(std::pair<unsigned, std::optional<unsigned>> interval, Atom* atom) {
    const auto [low, high] = interval;
    if (!atom->repeatable || low > kMaxRepeat || high.value_or(0) > kMaxRepeat ||
        (high && *high < low)) {
      return read_.Invalid("has a repetition that is not possible");
    }
    const bool exact = high && *high == low;
    if (read_.Peek() == '+' && low <= 1 && high.value_or(1) >= 1 && atom->one_character) {
      // (X{1,n})+ finds what X+ finds, in the same order, without a group to step back into.
      read_.Skip();
      atom->text += low == 0 ? '*' : '+';
      return absl::OkStatus();
    }
    atom->text += exact ? absl::StrCat("{", low, "}")
                        : absl::StrCat("{", low, ",", high ? absl::StrCat(*high) : "", "}");
    if (read_.Peek() == '?' &&
        !exact) {  // Lazy; {n}? is "at most once" and falls out of the caller.
      read_.Skip();
      atom->text += '?';
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Atom> Escape() {
    read_.Skip();
    if (read_.AtEnd()) {
      return read_.Invalid("ends in a backslash");
    }
    const char c = read_.Next();
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
    ASSIGN_OR_RETURN(std::string items, read_.ClassEscape(c));
    if (!items.empty()) {
      const bool bare = c == 'p' || c == 'P' || c == 'd' || c == 'D';
      return Atom{bare ? std::move(items) : absl::StrCat("[", items, "]"), true};
    }
    ASSIGN_OR_RETURN(const char32_t character, read_.CharacterEscape(c));
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
      return read_.Invalid("is nested too deeply");
    }
    const bool negated = read_.Take("^");
    std::vector<ClassPart> parts(1);
    bool first = true;
    while (first || !read_.Take("]")) {
      if (read_.AtEnd()) {
        return read_.Invalid("lacks a ]");
      }
      first = false;
      if (read_.Take("&&")) {
        parts.emplace_back();
      } else {
        RETURN_IF_ERROR(ClassItem(depth, &parts.back()));
      }
    }
    for (const ClassPart& part : parts) {
      if (part.items.empty() && part.nested.empty()) {
        return read_.Invalid("has an intersection with nothing");
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
    if (read_.Take("[:")) {
      return read_.Unsupported("a POSIX class such as [:alpha:]");
    }
    if (read_.Take("[")) {
      ASSIGN_OR_RETURN(std::string nested, Class(depth + 1));
      part->nested.push_back(std::move(nested));
      return absl::OkStatus();
    }
    char32_t low = 0;
    if (read_.Take("\\")) {
      if (read_.AtEnd()) {
        return read_.Invalid("ends in a backslash");
      }
      const char c = read_.Next();
      if (c == 'W') {
        part->nested.push_back("[^\\p{L}\\p{M}\\p{N}\\p{Pc}]");
        return absl::OkStatus();
      }
      ASSIGN_OR_RETURN(const std::string items, read_.ClassEscape(c));
      if (!items.empty()) {
        part->items += items;
        return absl::OkStatus();
      }
      ASSIGN_OR_RETURN(low, read_.CharacterEscape(c));
    } else {
      low = read_.NextCharacter();
    }
    if (read_.Peek() != '-' || read_.Peek(1) == ']' || read_.Peek(1) == '\0' ||
        read_.Peek(1) == '[') {
      part->items += CodePoint(low);
      return absl::OkStatus();
    }
    read_.Skip();
    char32_t high = 0;
    if (read_.Take("\\")) {
      if (read_.AtEnd()) {
        return read_.Invalid("ends in a backslash");
      }
      const char c = read_.Next();
      ASSIGN_OR_RETURN(high, read_.CharacterEscape(c));
    } else {
      high = read_.NextCharacter();
    }
    if (high < low) {
      return read_.Invalid("has an empty range");
    }
    part->items += CodePoint(low) + "-" + CodePoint(high);
    return absl::OkStatus();
  }

  PatternReader read_;
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
