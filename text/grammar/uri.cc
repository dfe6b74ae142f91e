#include "text/grammar/uri.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <vector>

namespace strata {
namespace {

struct Parts {
  std::string scheme;     // With its colon.
  std::string authority;  // With its two slashes.
  std::string path;
  std::string query;  // With its question mark.
};

Parts Split(std::string_view uri) {
  Parts parts;
  const size_t colon = uri.find(':');
  if (colon != std::string_view::npos && colon < uri.find_first_of("/?") && colon > 0) {
    parts.scheme = uri.substr(0, colon + 1);
    uri.remove_prefix(colon + 1);
  }
  if (uri.substr(0, 2) == "//") {
    const size_t end = uri.find_first_of("/?", 2);
    parts.authority = uri.substr(0, end);
    uri.remove_prefix(parts.authority.size());
  }
  const size_t question = uri.find('?');
  parts.path = uri.substr(0, question);
  parts.query = uri.substr(parts.path.size());
  return parts;
}

// Without `.` and `..` between slashes.
std::string WithoutDots(std::string_view path) {
  std::vector<std::string_view> kept;
  const bool rooted = !path.empty() && path[0] == '/';
  size_t at = rooted ? 1 : 0;
  bool folder = false;
  while (at <= path.size()) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    folder = part == "." || part == "..";
    if (part == "..") {
      if (!kept.empty()) {
        kept.pop_back();
      }
    } else if (part != ".") {
      kept.push_back(part);
    }
    at = end + 1;
  }
  std::string result = rooted ? "/" : "";
  for (size_t i = 0; i < kept.size(); ++i) {
    result += i == 0 ? "" : "/";
    result += kept[i];
  }
  return folder && !result.empty() && result.back() != '/' ? result + "/" : result;
}

std::string Joined(const Parts& parts) {
  return parts.scheme + parts.authority + parts.path + parts.query;
}

}  // namespace

std::string ResolveUri(std::string_view base, std::string_view reference) {
  const Parts from = Split(base);
  Parts to = Split(reference);
  if (!to.scheme.empty()) {
    return std::string(reference);
  }
  to.scheme = from.scheme;
  if (!to.authority.empty()) {
    return Joined(to);
  }
  to.authority = from.authority;
  if (to.path.empty()) {
    to.path = from.path;
    to.query = to.query.empty() ? from.query : to.query;
  } else if (to.path[0] != '/') {
    const size_t slash = from.path.rfind('/');
    const std::string folder = slash != std::string::npos ? from.path.substr(0, slash + 1)
                               : from.authority.empty()   ? ""
                                                          : "/";
    to.path = WithoutDots(folder + to.path);
  } else {
    to.path = WithoutDots(to.path);
  }
  return Joined(to);
}

std::optional<std::string> UriDecoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    if (i + 2 >= text.size() || std::isxdigit(static_cast<unsigned char>(text[i + 1])) == 0 ||
        std::isxdigit(static_cast<unsigned char>(text[i + 2])) == 0) {
      return std::nullopt;
    }
    result += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
    i += 2;
  }
  return result;
}

}  // namespace strata
