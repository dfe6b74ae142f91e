#include "cli/doctor/redact.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>

namespace strata::cli {
namespace {

constexpr std::string_view kRemoved = "(removed)";
// Shorter ones are words that stand anywhere.
constexpr size_t kLeastSecretBytes = 6;
// What coordinators' API keys (strata-…), and others' keys and tokens, begin with, and how many
// letters and digits follow at least.
struct Prefix {
  std::string_view text;
  size_t least;
};
constexpr std::array<Prefix, 6> kPrefixes{{{"strata-join-1.", 8},
                                           {"strata-", 24},
                                           {"hf_", 16},
                                           {"sk-", 16},
                                           {"Bearer ", 1},
                                           {"Basic ", 1}}};
constexpr std::array<std::string_view, 15> kSecretNames{
    "prompt", "messages", "text",          "content", "input",
    "secret", "password", "passphrase",    "api_key", "api-key",
    "apikey", "token",    "authorization", "key_pem", "completion"};

bool IsWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
         c == '/' || c == '+' || c == '=' || c == '~';
}
bool IsName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

void RemoveAll(const std::string& secret, std::string* text) {
  for (size_t at = text->find(secret); at != std::string::npos;
       at = text->find(secret, at + kRemoved.size())) {
    text->replace(at, secret.size(), kRemoved);
  }
}

void RemovePrivateKeys(std::string* text) {
  constexpr std::string_view kBegin = "-----BEGIN ";
  constexpr std::string_view kKey = "PRIVATE KEY-----";
  constexpr std::string_view kEnd = "-----END ";
  for (size_t at = text->find(kBegin); at != std::string::npos; at = text->find(kBegin, at + 1)) {
    const size_t line = std::min(text->find_first_of("\n\\", at), text->size());
    if (text->substr(at, line - at).find(kKey) == std::string::npos) {
      continue;
    }
    const size_t end = text->find(kEnd, at);
    const size_t after = end == std::string::npos ? end : text->find("-----", end + kEnd.size());
    const size_t stop = after == std::string::npos ? text->size() : after + 5;
    text->replace(at, stop - at, kRemoved);
  }
}

void RemovePrefixed(const Prefix& prefix, std::string* text) {
  for (size_t at = text->find(prefix.text); at != std::string::npos;
       at = text->find(prefix.text, at + 1)) {
    const size_t begin = at + prefix.text.size();
    size_t end = begin;
    while (end < text->size() && IsWord((*text)[end])) ++end;
    if (end - begin >= prefix.least && (at == 0 || !IsName((*text)[at - 1]))) {
      text->replace(begin, end - begin, kRemoved);
    }
  }
}

// Whether `name`, as it stands in a text, says that what follows is not to be seen.
bool IsSecretName(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool counted = lower.ends_with("_tokens") || lower.ends_with("_bytes");
  return !counted &&
         std::any_of(kSecretNames.begin(), kSecretNames.end(), [&](std::string_view one) {
           return lower == one || lower.ends_with("_" + std::string(one));
         });
}

// Where a value that begins at `at` ends: a JSON value, a text in quotes, or a word.
size_t EndOfValue(const std::string& text, size_t at) {
  if (at >= text.size()) return at;
  const char first = text[at];
  if (first == '[' || first == '{') {
    int depth = 0;
    bool quoted = false;
    for (size_t i = at; i < text.size(); ++i) {
      if (quoted) {
        if (text[i] == '\\')
          ++i;
        else if (text[i] == '"')
          quoted = false;
      } else if (text[i] == '"') {
        quoted = true;
      } else if (text[i] == '[' || text[i] == '{') {
        ++depth;
      } else if ((text[i] == ']' || text[i] == '}') && --depth == 0) {
        return i + 1;
      }
    }
    return text.size();
  }
  if (first == '"' || first == '\'') {
    for (size_t i = at + 1; i < text.size(); ++i) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == first)
        return i + 1;
    }
    return text.size();
  }
  size_t end = at;
  while (end < text.size() && std::isspace(static_cast<unsigned char>(text[end])) == 0 &&
         text[end] != ',' && text[end] != '}' && text[end] != ']') {
    ++end;
  }
  return end;
}

// "name": value, name=value, name = value.
void RemoveNamed(std::string* text) {
  for (size_t i = 0; i < text->size();) {
    if (!IsName((*text)[i])) {
      ++i;
      continue;
    }
    const size_t begin = i;
    while (i < text->size() && IsName((*text)[i])) ++i;
    const bool secret = IsSecretName(std::string_view(*text).substr(begin, i - begin));
    size_t at = i;
    if (at < text->size() && (*text)[at] == '"') ++at;
    while (at < text->size() && (*text)[at] == ' ') ++at;
    if (!secret || at >= text->size() || ((*text)[at] != ':' && (*text)[at] != '=')) {
      continue;
    }
    // After a colon in prose comes a sentence; a member of JSON is in quotes.
    if ((*text)[at] == ':' && (*text)[i] != '"') {
      continue;
    }
    ++at;
    while (at < text->size() && (*text)[at] == ' ') ++at;
    const size_t end = EndOfValue(*text, at);
    const bool quoted = at < text->size() && (*text)[at] != '[' && (*text)[i] == '"';
    const std::string with =
        quoted || (at < text->size() && ((*text)[at] == '[' || (*text)[at] == '{'))
            ? "\"" + std::string(kRemoved) + "\""
            : std::string(kRemoved);
    text->replace(at, end - at, with);
    i = at + with.size();
  }
}

}  // namespace

std::string Redact(std::string_view text, const std::vector<std::string>& secrets) {
  std::string out(text);
  for (const std::string& secret : secrets) {
    if (secret.size() >= kLeastSecretBytes) RemoveAll(secret, &out);
  }
  RemovePrivateKeys(&out);
  for (const Prefix& prefix : kPrefixes) RemovePrefixed(prefix, &out);
  RemoveNamed(&out);
  return out;
}

}  // namespace strata::cli
