#include "text/tools/marked_text.h"

#include "text/unicode/utf8.h"

namespace strata {

std::string MarkedToken(std::string_view name) {
  std::string marked(1, kTokenBegins);
  marked += name;
  marked += kTokenEnds;
  return marked;
}

std::string WithoutTokens(std::string_view text) {
  std::string out;
  bool in_token = false;
  for (const char byte : text) {
    if (byte == kTokenBegins || byte == kTokenEnds) {
      in_token = byte == kTokenBegins;
    } else if (!in_token) {
      out += byte;
    }
  }
  return out;
}

std::string Marked(std::string_view literal, std::span<const std::string_view> tokens,
                   const std::function<bool(std::string_view)>& is_special) {
  std::string out;
  size_t at = 0;
  while (at < literal.size()) {
    std::string_view longest;
    for (const std::string_view token : tokens) {
      if (token.size() > longest.size() && literal.substr(at).starts_with(token) &&
          is_special(token)) {
        longest = token;
      }
    }
    if (longest.empty()) {
      out += literal[at++];
    } else {
      out += MarkedToken(longest);
      at += longest.size();
    }
  }
  return out;
}

bool IsBlank(char byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

std::string_view Stripped(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) {
    text.remove_prefix(1);
  }
  return text.substr(0, BlanksAtEnd(text));
}

size_t BlanksAtEnd(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && IsBlank(text[end - 1])) {
    --end;
  }
  return end;
}

void MarkedText::Add(std::string_view text) {
  for (const char byte : text) {
    if (byte == kTokenBegins || byte == kTokenEnds) {
      text_ += kReplacementCharacter;
    } else {
      text_ += byte;
    }
  }
}

MarkedText::Match MarkedText::At(std::string_view pattern, size_t at) const {
  const std::string_view here = left().substr(at);
  if (pattern.empty()) {
    return Match::kNo;
  }
  if (here.starts_with(pattern)) {
    return Match::kYes;
  }
  return !ended_ && pattern.starts_with(here) ? Match::kMaybe : Match::kNo;
}

MarkedText::Found MarkedText::Find(std::string_view pattern) const {
  const std::string_view text = left();
  if (pattern.empty()) {
    return {Match::kNo, text.size()};
  }
  const size_t found = text.find(pattern);
  if (found != std::string_view::npos) {
    return {Match::kYes, found};
  }
  size_t at = text.size() < pattern.size() ? 0 : text.size() - pattern.size() + 1;
  for (; !ended_ && at < text.size(); ++at) {
    if (pattern.starts_with(text.substr(at))) {
      return {Match::kMaybe, at};
    }
  }
  return {Match::kNo, text.size()};
}

}  // namespace strata
