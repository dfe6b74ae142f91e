#include "text/template/lexer.h"

#include <algorithm>
#include <cstdlib>

#include "text/template/failure.h"
#include "text/template/integer.h"
#include "text/template/string_literal.h"
#include "text/unicode/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {
namespace {

// \r\n and \r become \n; one newline at the end is dropped.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      i += i + 1 < source.size() && source[i + 1] == '\n' ? 1 : 0;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') {
    out.pop_back();
  }
  return out;
}

bool IsDigitByte(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string source, size_t max_tokens)
      : source_(std::move(source)), max_tokens_(max_tokens) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) {
      LexText();
    }
    Add(Token::Type::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(at_); }
  bool StartsWith(std::string_view what) const { return Rest().substr(0, what.size()) == what; }

  void Advance(size_t bytes) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                    source_.begin() + static_cast<ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
    line_starting_ = bytes > 0 && source_[at_ - 1] == '\n';
  }

  void SkipSpace() {
    size_t bytes = 0;
    while (at_ + bytes < source_.size()) {
      const CodePoint c = DecodeAt(source_, at_ + bytes);
      if (!python::IsSpace(c.value)) {
        break;
      }
      bytes += c.bytes;
    }
    if (bytes > 0) {
      Advance(bytes);
    }
  }

  void Add(Token::Type type, std::string text, Value number = Value()) {
    if (tokens_.size() >= max_tokens_) {
      throw Failure{Failure::Kind::kLimit,
                    "the template has more than " + std::to_string(max_tokens_) + " tokens", line_};
    }
    tokens_.push_back({type, std::move(text), std::move(number), line_});
  }

  // The text before a tag, stripped as its sign and lstrip_blocks ask.
  void AddText(std::string_view text, char sign, bool may_lstrip) {
    if (sign == '-') {
      text = python::Strip(text, python::Side::kRight);
    } else if (sign != '+' && may_lstrip) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == text.npos ? 0 : newline + 1;
      if ((start > 0 || line_starting_) &&
          python::Strip(text.substr(start), python::Side::kBoth).empty()) {
        text = text.substr(0, start);
      }
    }
    if (!text.empty()) {
      Add(Token::Type::kText, std::string(text));
    }
  }

  char SignAt(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : ' ';
  }

  // Text up to the next tag, and that tag.
  void LexText() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == source_.npos || tag + 1 >= source_.size()) {
        AddText(Rest(), '+', false);
        Advance(source_.size() - at_);
        return;
      }
      const char kind = source_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') {
        break;
      }
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = SignAt(tag + 2);
    AddText(Rest().substr(0, tag - at_), sign, kind != '{');
    Advance(tag - at_);
    const size_t begin_bytes = sign == ' ' ? 2 : 3;
    if (kind == '#') {
      Advance(begin_bytes);
      LexComment();
    } else if (kind == '%') {
      if (!LexRaw(begin_bytes)) {
        Advance(begin_bytes);
        Add(Token::Type::kBlockBegin, "{%");
        LexTag(Token::Type::kBlockEnd);
      }
    } else {
      Advance(begin_bytes);
      Add(Token::Type::kVariableBegin, "{{");
      LexTag(Token::Type::kVariableEnd);
    }
  }

  // Past a closing "#}" or "%}" whose bytes are in front, preceded by `sign` if that is not ' '.
  void CloseTag(char sign) {
    Advance(sign == ' ' ? 2 : 3);
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+' && StartsWith("\n")) {
      Advance(1);
    }
  }

  void LexComment() {
    if (at_ == source_.size()) {
      return;  // As Jinja has it: opened at the very end, it is empty.
    }
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) {
      FailSyntax("Missing end of comment tag", line_);
    }
    const bool signed_end = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    const char sign = signed_end ? source_[end - 1] : ' ';
    Advance(end - at_ - (signed_end ? 1 : 0));
    CloseTag(sign);
  }

  size_t SkipSpaceFrom(size_t at) const {
    while (at < source_.size()) {
      const CodePoint c = DecodeAt(source_, at);
      if (!python::IsSpace(c.value)) {
        break;
      }
      at += c.bytes;
    }
    return at;
  }

  // If a {% raw %} is in front: its text, past {% endraw %}.
  bool LexRaw(size_t begin_bytes) {
    size_t at = SkipSpaceFrom(at_ + begin_bytes);
    if (source_.compare(at, 3, "raw") != 0) {
      return false;
    }
    at = SkipSpaceFrom(at + 3);
    const bool minus = at < source_.size() && source_[at] == '-';
    if (source_.compare(at + (minus ? 1 : 0), 2, "%}") != 0) {
      return false;
    }
    Advance(at + (minus ? 3 : 2) - at_);
    if (minus) {
      SkipSpace();
    }
    if (at_ == source_.size()) {
      return true;  // As with comments.
    }
    for (size_t end = at_; (end = source_.find("{%", end)) != source_.npos; ++end) {
      const char sign = SignAt(end + 2);
      size_t close = SkipSpaceFrom(end + (sign == ' ' ? 2 : 3));
      if (source_.compare(close, 6, "endraw") != 0) {
        continue;
      }
      close = SkipSpaceFrom(close + 6);
      const char close_sign = SignAt(close);
      if (source_.compare(close + (close_sign == ' ' ? 0 : 1), 2, "%}") != 0) {
        continue;
      }
      AddText(Rest().substr(0, end - at_), sign, true);
      Advance(close - at_);
      CloseTag(close_sign);
      return true;
    }
    FailSyntax("Missing end of raw directive", line_);
  }

  // The tokens of one tag, its end included.
  void LexTag(Token::Type end) {
    open_brackets_.clear();
    while (true) {
      SkipSpace();
      if (at_ >= source_.size()) {
        return;  // The parser says what is missing.
      }
      if (open_brackets_.empty() && LexEnd(end)) {
        return;
      }
      LexToken();
    }
  }

  bool LexEnd(Token::Type end) {
    const bool block = end == Token::Type::kBlockEnd;
    const std::string_view close = block ? "%}" : "}}";
    const char sign = SignAt(at_);
    if (Rest().substr(sign == ' ' ? 0 : 1, 2) != close || (!block && sign == '+')) {
      return false;
    }
    Add(end, std::string(close));
    if (block) {
      CloseTag(sign);
      return true;
    }
    Advance(sign == ' ' ? 2 : 3);
    if (sign == '-') {
      SkipSpace();
    }
    return true;
  }

  void LexToken() {
    const CodePoint c = DecodeAt(source_, at_);
    if (IsDigitByte(source_[at_])) {
      LexNumber();
    } else if (python::IsWord(c.value)) {
      LexName();
    } else if (c.value == '\'' || c.value == '"') {
      LexString();
    } else {
      LexOperator();
    }
  }

  void LexName() {
    size_t bytes = 0;
    bool valid = true;
    while (at_ + bytes < source_.size()) {
      const CodePoint c = DecodeAt(source_, at_ + bytes);
      if (!python::IsWord(c.value)) {
        break;
      }
      valid = valid &&
              (bytes == 0 ? python::IsIdentifierStart(c.value) : python::IsIdentifierPart(c.value));
      bytes += c.bytes;
    }
    if (!valid) {
      FailSyntax("Invalid character in identifier", line_);
    }
    Add(Token::Type::kName, std::string(Rest().substr(0, bytes)));
    Advance(bytes);
  }

  void LexString() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) {
      end += source_[end] == '\\' ? 2 : 1;
    }
    if (end >= source_.size()) {
      FailSyntax(std::string("unexpected char ") + quote + ": a string is not closed", line_);
    }
    Add(Token::Type::kString,
        UnescapeString(std::string_view(source_).substr(at_ + 1, end - at_ - 1), line_));
    Advance(end + 1 - at_);
  }

  // Digits with single underscores between them, from `at`; where they end.
  size_t DigitsEnd(size_t at) const {
    while (at < source_.size() &&
           (IsDigitByte(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && IsDigitByte(source_[at + 1]) &&
             IsDigitByte(source_[at - 1])))) {
      ++at;
    }
    return at;
  }

  // Where a float in front ends, or at_ if there is none.
  size_t FloatEnd() const {
    if (at_ > 0 && source_[at_ - 1] == '.') {
      return at_;
    }
    const auto is_digit = [this](size_t at) {
      return at < source_.size() && IsDigitByte(source_[at]);
    };
    size_t end = DigitsEnd(at_);
    bool is_float = false;
    if (end < source_.size() && source_[end] == '.' && is_digit(end + 1)) {
      end = DigitsEnd(end + 1);
      is_float = true;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (is_digit(end + 1 + sign)) {
        end = DigitsEnd(end + 1 + sign);
        is_float = true;
      }
    }
    return is_float ? end : at_;
  }

  // Where an integer in front ends.
  size_t IntegerEnd() const {
    const auto run = [this](size_t at, auto accepts) {
      while (true) {
        const size_t next = at < source_.size() && source_[at] == '_' ? at + 1 : at;
        if (next >= source_.size() || !accepts(source_[next])) {
          return at;
        }
        at = next + 1;
      }
    };
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char base = static_cast<char>(source_[at_ + 1] | 0x20);
      size_t end = at_ + 2;
      if (base == 'x') {
        end = run(end, [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
      } else if (base == 'o') {
        end = run(end, [](char c) { return c >= '0' && c <= '7'; });
      } else if (base == 'b') {
        end = run(end, [](char c) { return c == '0' || c == '1'; });
      }
      if (end > at_ + 2) {
        return end;
      }
      return run(at_ + 1, [](char c) { return c == '0'; });
    }
    return run(at_ + 1, IsDigitByte);
  }

  void LexNumber() {
    const size_t float_end = FloatEnd();
    const bool is_float = float_end > at_;
    const size_t end = is_float ? float_end : IntegerEnd();
    std::string digits = source_.substr(at_, end - at_);
    if (is_float) {
      std::erase(digits, '_');
      Add(Token::Type::kFloat, digits, Value::Float(std::strtod(digits.c_str(), nullptr)));
    } else {
      Value number;
      // A leading zero cannot come here but in zero itself.
      if (!ParseInteger(nullptr, digits, 0, &number)) {
        FailSyntax("a number of the template is too long", line_);
      }
      Add(Token::Type::kInteger, digits, number);
    }
    Advance(end - at_);
  }

  void LexOperator() {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  "<",  ">", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (StartsWith(op)) {
        Balance(op[0]);
        Add(Token::Type::kOperator, std::string(op));
        Advance(op.size());
        return;
      }
    }
    const CodePoint c = DecodeAt(source_, at_);
    FailSyntax("unexpected char '" + source_.substr(at_, c.bytes) + "'", line_);
  }

  void Balance(char c) {
    if (c == '(' || c == '[' || c == '{') {
      open_brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets_.empty()) {
        FailSyntax(std::string("unexpected '") + c + "'", line_);
      }
      if (open_brackets_.back() != c) {
        FailSyntax(std::string("unexpected '") + c + "', expected '" + open_brackets_.back() + "'",
                   line_);
      }
      open_brackets_.pop_back();
    }
  }

  const std::string source_;
  const size_t max_tokens_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string open_brackets_;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source, size_t max_tokens) {
  return Lexer(NormalizeNewlines(source), max_tokens).Run();
}

}  // namespace strata::jinja
