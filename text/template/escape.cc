#include "text/template/escape.h"

#include <cstdlib>
#include <utility>

#include "text/template/runtime.h"
#include "text/unicode/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::jinja {
namespace {

// Removes every piece from `open` to the next `close`.
std::string RemoveBetween(std::string_view text, std::string_view open, std::string_view close) {
  std::string out;
  while (true) {
    const size_t start = text.find(open);
    const size_t end = start == text.npos ? text.npos : text.find(close, start);
    if (end == text.npos) {
      return out.append(text);
    }
    out.append(text.substr(0, start));
    text.remove_prefix(end + close.size());
  }
}

std::string CollapseSpace(std::string_view text) {
  std::string out;
  bool pending = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    if (python::IsSpace(c.value)) {
      pending = !out.empty();
    } else {
      if (pending) {
        out.push_back(' ');
        pending = false;
      }
      out.append(text.substr(at, c.bytes));
    }
    at += c.bytes;
  }
  return out;
}

// The character of an entity's name, 0 if it is not known.
char32_t EntityOf(std::string_view name) {
  static constexpr std::pair<std::string_view, char32_t> kNames[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}, {"nbsp", 0xA0}};
  for (const auto& [known, code] : kNames) {
    if (name == known) {
      return code;
    }
  }
  if (name.size() < 2 || name[0] != '#') {
    return 0;
  }
  const bool hex = name[1] == 'x' || name[1] == 'X';
  const std::string digits(name.substr(hex ? 2 : 1));
  char* end = nullptr;
  const uint64_t code = std::strtoul(digits.c_str(), &end, hex ? 16 : 10);
  const bool valid = !digits.empty() && *end == 0 && code > 0 && code <= 0x10FFFF &&
                     !(code >= 0xD800 && code < 0xE000);
  return valid ? static_cast<char32_t>(code) : 0;
}

}  // namespace

std::string Escaped(Runtime& runtime, std::string_view text) {
  runtime.StepCharacters(text.size());
  runtime.CheckBytes(text.size());
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string StripTags(std::string_view text) {
  const std::string plain =
      CollapseSpace(RemoveBetween(RemoveBetween(text, "<!--", "-->"), "<", ">"));
  std::string out;
  for (size_t at = 0; at < plain.size();) {
    if (plain[at] == '&') {
      const size_t end = plain.find(';', at);
      if (end != plain.npos && end - at <= 12) {
        if (const char32_t code = EntityOf(std::string_view(plain).substr(at + 1, end - at - 1))) {
          AppendUtf8(code, &out);
          at = end + 1;
          continue;
        }
      }
    }
    out.push_back(plain[at++]);
  }
  return out;
}

std::string UrlQuote(std::string_view text, std::string_view safe, bool plus) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool unreserved = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                            (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' || c == '~';
    if (unreserved || safe.find(c) != safe.npos) {
      out.push_back(c);
    } else if (c == ' ' && plus) {
      out.push_back('+');
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out.push_back('%');
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    }
  }
  return out;
}

}  // namespace strata::jinja
