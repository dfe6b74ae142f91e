#include "text/tools/python_literal.h"

#include <cstdint>
#include <utility>

#include "common/hex_digit.h"
#include "text/tools/json_scanner.h"
#include "text/tools/marked_text.h"
#include "text/unicode/utf8.h"

namespace strata {
namespace {

constexpr size_t kMaxLiteralDepth = 64;

// Recursive descent.
class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  std::optional<std::string> Read() {
    std::string json;
    if (!Value(&json)) {
      return std::nullopt;
    }
    SkipBlanks();
    return at_ == text_.size() ? std::optional(std::move(json)) : std::nullopt;
  }

 private:
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c) {
    const bool here = at_ < text_.size() && text_[at_] == c;
    at_ += here ? 1 : 0;
    return here;
  }
  void SkipBlanks() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
  }

  bool Value(std::string* json) {
    SkipBlanks();
    if (++depth_ > kMaxLiteralDepth) {
      return false;
    }
    const bool read = OneOf(json);
    --depth_;
    return read;
  }

  bool OneOf(std::string* json) {
    switch (Peek()) {
      case '"':
      case '\'':
        return String(json);
      case '[':
        return List('[', ']', json);
      case '(':
        return List('(', ')', json);
      case '{':
        return Dict(json);
      default:
        return Word(json);
    }
  }

  // A list or a tuple; one value in parentheses is that value.
  bool List(char open, char close, std::string* json) {
    Take(open);
    std::string items;
    size_t count = 0;
    bool commas = false;
    SkipBlanks();
    while (!Take(close)) {
      if (count++ > 0) items += ", ";
      if (!Value(&items)) {
        return false;
      }
      SkipBlanks();
      const bool comma = Take(',');
      if (!comma && Peek() != close) {
        return false;
      }
      commas = commas || comma;
      SkipBlanks();
    }
    *json += open == '(' && count == 1 && !commas ? items : "[" + items + "]";
    return true;
  }

  bool Dict(std::string* json) {
    Take('{');
    *json += '{';
    for (bool first = true;; first = false) {
      SkipBlanks();
      if (Take('}')) {
        *json += '}';
        return true;
      }
      if (!first) *json += ", ";
      if ((Peek() != '"' && Peek() != '\'') || !String(json)) {
        return false;
      }
      SkipBlanks();
      if (!Take(':')) {
        return false;
      }
      *json += ": ";
      if (!Value(json)) {
        return false;
      }
      SkipBlanks();
      if (!Take(',') && Peek() != '}') {
        return false;
      }
    }
  }

  // A number or a constant.
  bool Word(std::string* json) {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           std::string_view(",:)]} \t\r\n").find(text_[at_]) == std::string_view::npos) {
      ++at_;
    }
    std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "True") word = "true";
    if (word == "False") word = "false";
    if (word == "None") word = "null";
    if (!word.empty() && word.front() == '+') word.remove_prefix(1);
    if (word.empty() || !IsJson(word)) {
      return false;
    }
    *json += word;
    return true;
  }

  bool String(std::string* json) {
    const char quote = text_[at_++];
    std::string text;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] != '\\') {
        text += text_[at_++];
        continue;
      }
      ++at_;
      if (!Escape(&text)) {
        return false;
      }
    }
    if (!Take(quote)) {
      return false;
    }
    json->append("\"").append(JsonEscaped(text)).append("\"");
    return true;
  }

  bool Escape(std::string* text) {
    const char c = Peek();
    ++at_;
    switch (c) {
      case 'n':
        *text += '\n';
        return true;
      case 't':
        *text += '\t';
        return true;
      case 'r':
        *text += '\r';
        return true;
      case 'b':
        *text += '\b';
        return true;
      case 'f':
        *text += '\f';
        return true;
      case '\n':
        return true;  // A line that goes on.
      case 'x':
        return Character(2, text);
      case 'u':
        return Character(4, text);
      case 'U':
        return Character(8, text);
      case '\\':
      case '\'':
      case '"':
      case '/':  // JSON's.
        *text += c;
        return true;
      default:
        break;
    }
    if (at_ > text_.size()) {
      return false;
    }
    *text += '\\';  // Python leaves what is no escape as it is.
    *text += c;
    return true;
  }

  std::optional<uint32_t> Hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const int digit = HexDigit(static_cast<unsigned char>(Peek()));
      if (digit < 0) {
        return std::nullopt;
      }
      value = value * 16 + static_cast<uint32_t>(digit);
      ++at_;
    }
    return value;
  }

  bool Character(size_t digits, std::string* text) {
    std::optional<uint32_t> value = Hex(digits);
    if (value.has_value() && *value >= 0xD800 && *value <= 0xDBFF && Take('\\')) {
      // The second half of a pair, which JSON writes so.
      const std::optional<uint32_t> low = Take('u') ? Hex(4) : std::nullopt;
      if (!low.has_value() || *low < 0xDC00 || *low > 0xDFFF) {
        return false;
      }
      value = 0x10000 + ((*value - 0xD800) << 10) + (*low - 0xDC00);
    }
    if (!value.has_value() || *value > 0x10FFFF || (*value >= 0xD800 && *value <= 0xDFFF)) {
      return false;
    }
    AppendUtf8(*value, text);
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
  size_t depth_ = 0;
};

}  // namespace

std::optional<size_t> PythonValueEnd::Find(std::string_view text) {
  for (; at_ < text.size(); ++at_) {
    const char c = text[at_];
    if (quote_ != '\0') {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == quote_) {
        quote_ = '\0';
      }
    } else if (c == '"' || c == '\'') {
      quote_ = c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth_;
    } else if (depth_ > 0 && (c == ')' || c == ']' || c == '}')) {
      --depth_;
    } else if (depth_ == 0 && (c == ',' || c == ')' || c == ']' || c == '}')) {
      return at_;
    }
  }
  return std::nullopt;
}

bool IsPythonNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || static_cast<unsigned char>(c) >= 0x80;
}

std::optional<std::string> JsonOfPython(std::string_view value) {
  return LiteralReader(value).Read();
}

}  // namespace strata
