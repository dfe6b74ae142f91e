#include "text/template/string_literal.h"

#include <cctype>

#include "text/template/failure.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {
namespace {

class Unescaper {
 public:
  Unescaper(std::string_view raw, int line) : raw_(raw), line_(line) {}

  std::string Run() {
    while (at_ < raw_.size()) {
      if (raw_[at_] != '\\' || at_ + 1 >= raw_.size()) {
        out_.push_back(raw_[at_++]);
      } else {
        Escape(raw_[at_ + 1]);
      }
    }
    return std::move(out_);
  }

 private:
  void Escape(char c) {
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kCharacters = "\a\b\f\n\r\t\v\\'\"";
    const size_t simple = kNames.find(c);
    if (simple != kNames.npos) {
      out_.push_back(kCharacters[simple]);
      at_ += 2;
    } else if (c == '\n') {
      at_ += 2;
    } else if (c == 'x') {
      Hex(2, "truncated \\xXX escape");
    } else if (c == 'u') {
      Hex(4, "truncated \\uXXXX escape");
    } else if (c == 'U') {
      Hex(8, "truncated \\UXXXXXXXX escape");
    } else if (c == 'N') {
      FailSyntax("unknown Unicode character name: \\N escapes are not supported", line_);
    } else if (c >= '0' && c <= '7') {
      Octal();
    } else {
      out_.push_back('\\');  // Not an escape: kept as it is.
      ++at_;
    }
  }

  char32_t HexAt(size_t at, size_t digits, const char* error) {
    char32_t code = 0;
    for (size_t i = 0; i < digits; ++i) {
      const auto c = static_cast<unsigned char>(at + i < raw_.size() ? raw_[at + i] : ' ');
      if (!std::isxdigit(c)) {
        FailSyntax(error, line_);
      }
      code = code * 16 + static_cast<char32_t>(std::isdigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return code;
  }

  void Hex(size_t digits, const char* error) {
    char32_t code = HexAt(at_ + 2, digits, error);
    at_ += 2 + digits;
    const bool paired = code >= 0xD800 && code < 0xDC00 && raw_.substr(at_, 2) == "\\u";
    if (paired) {
      const char32_t low = HexAt(at_ + 2, 4, error);
      if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        at_ += 6;
      }
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      FailSyntax("a string escape is no Unicode character", line_);
    }
    AppendUtf8(code, &out_);
  }

  void Octal() {
    char32_t code = 0;
    ++at_;
    for (int i = 0; i < 3 && at_ < raw_.size() && raw_[at_] >= '0' && raw_[at_] <= '7'; ++i) {
      code = code * 8 + static_cast<char32_t>(raw_[at_++] - '0');
    }
    AppendUtf8(code, &out_);
  }

  const std::string_view raw_;
  const int line_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string UnescapeString(std::string_view raw, int line) { return Unescaper(raw, line).Run(); }

}  // namespace strata::jinja
