#include "text/tools/braced_literal.h"

#include <algorithm>

#include "text/tools/json_scanner.h"
#include "text/tools/marked_text.h"

namespace strata {
namespace {

constexpr size_t kMaxLiteralDepth = 64;

// Recursive descent.
class BracedReader {
 public:
  BracedReader(std::string_view text, std::string_view quote) : text_(text), quote_(quote) {}

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
  bool Take(std::string_view mark) {
    const bool here = text_.substr(at_).starts_with(mark);
    at_ += here ? mark.size() : 0;
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
    if (Take(quote_)) {
      return Text(json);
    }
    switch (Peek()) {
      case '"':
        return JsonText(json);
      case '[':
        return Items(']', /*keys=*/false, json);
      case '{':
        return Items('}', /*keys=*/true, json);
      default:
        return Word(json);
    }
  }

  bool Items(char close, bool keys, std::string* json) {
    *json += text_[at_++];
    SkipBlanks();
    for (bool first = true; Peek() != close; first = false) {
      if (!first) {
        if (!Take(",")) {
          return false;
        }
        *json += ", ";
      }
      if ((keys && !Key(json)) || !Value(json)) {
        return false;
      }
      SkipBlanks();
    }
    *json += text_[at_++];
    return true;
  }

  bool Key(std::string* json) {
    SkipBlanks();
    if (Take(quote_)) {
      if (!Text(json)) return false;
    } else if (Peek() == '"') {
      if (!JsonText(json)) return false;
    } else {
      const size_t end = text_.find_first_of(":,{}[]\"", at_);
      if (end == std::string_view::npos || Stripped(text_.substr(at_, end - at_)).empty()) {
        return false;
      }
      json->append("\"").append(JsonEscaped(Stripped(text_.substr(at_, end - at_)))).append("\"");
      at_ = end;
    }
    SkipBlanks();
    *json += ": ";
    return Take(":");
  }

  // Behind its mark.
  bool Text(std::string* json) {
    const size_t end = text_.find(quote_, at_);
    if (end == std::string_view::npos) {
      return false;
    }
    json->append("\"").append(JsonEscaped(text_.substr(at_, end - at_))).append("\"");
    at_ = end + quote_.size();
    return true;
  }

  bool JsonText(std::string* json) {
    JsonScanner scanner;
    auto result = JsonScanner::Result::kMore;
    while (at_ < text_.size() && result == JsonScanner::Result::kMore) {
      result = scanner.Add(text_[at_++], json);
    }
    return result == JsonScanner::Result::kEnds;
  }

  // A number or a constant.
  bool Word(std::string* json) {
    const size_t end = std::min(text_.find_first_of(",:]} \t\r\n", at_), text_.size());
    std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    if (word == "True") word = "true";
    if (word == "False") word = "false";
    if (word == "None") word = "null";
    if (word.empty() || !IsJson(word)) {
      return false;
    }
    *json += word;
    return true;
  }

  const std::string_view text_;
  const std::string_view quote_;
  size_t at_ = 0;
  size_t depth_ = 0;
};

}  // namespace

std::optional<size_t> BracedValueEnd::Find(std::string_view text, bool ended) {
  while (at_ < text.size()) {
    const char c = text[at_];
    const std::string_view rest = text.substr(at_);
    if (in_ == In::kJsonText) {
      in_ = !escaped_ && c == '"' ? In::kValue : in_;
      escaped_ = !escaped_ && c == '\\';
      ++at_;
    } else if (rest.starts_with(quote_)) {
      in_ = in_ == In::kText ? In::kValue : In::kText;
      at_ += quote_.size();
    } else if (!ended && rest.size() < quote_.size() && quote_.starts_with(rest)) {
      return std::nullopt;
    } else if (c == kTokenBegins) {
      return at_;
    } else if (in_ == In::kText) {
      ++at_;
    } else if (depth_ == 0 && (c == ',' || c == ']' || c == '}')) {
      return at_;
    } else {
      in_ = c == '"' ? In::kJsonText : In::kValue;
      depth_ += c == '[' || c == '{' ? 1 : 0;
      depth_ -= c == ']' || c == '}' ? 1 : 0;
      ++at_;
    }
  }
  return std::nullopt;
}

std::optional<std::string> JsonOfBraced(std::string_view value, std::string_view quote) {
  return BracedReader(value, quote).Read();
}

}  // namespace strata
