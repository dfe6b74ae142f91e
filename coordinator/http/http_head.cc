#include "coordinator/http/http_head.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/hex_digit.h"

namespace strata {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The byte that an escape at `at` stands for; -1: there is none.
int EscapedByte(std::string_view text, size_t at) {
  if (text[at] != '%' || at + 2 >= text.size()) {
    return -1;
  }
  const int high = HexDigit(static_cast<unsigned char>(text[at + 1]));
  const int low = HexDigit(static_cast<unsigned char>(text[at + 2]));
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string_view Trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// The elements of all headers of this name, each a list separated by commas.
std::vector<std::string_view> ListOf(const HttpHeaders& headers, std::string_view name) {
  std::vector<std::string_view> list;
  for (const auto& [key, value] : headers) {
    if (!SameHeaderName(key, name)) {
      continue;
    }
    for (std::string_view rest = value;;) {
      const size_t comma = rest.find(',');
      list.push_back(Trimmed(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return list;
}

HeadProblem BadTarget(std::string message) { return {400, "bad_target", std::move(message)}; }

std::optional<HeadProblem> DecodePath(std::string_view path, std::string* decoded) {
  for (size_t at = 0; at < path.size(); ++at) {
    int byte = static_cast<unsigned char>(path[at]);
    if (path[at] == '%') {
      byte = EscapedByte(path, at);
      if (byte < 0) {
        return BadTarget("a percent sign in the path is not followed by two hexadecimal digits");
      }
      if (byte == '/') {  // Another path than with a slash.
        decoded->append("%2F");
        at += 2;
        continue;
      }
      at += 2;
    }
    if (byte < 0x20 || byte == 0x7f || (path[at] == '#')) {
      return BadTarget("the path has a character that no path may have");
    }
    decoded->push_back(static_cast<char>(byte));
  }
  return std::nullopt;
}

// How the body is framed: what two readers could take for different bodies is refused.
std::optional<HeadProblem> CheckFraming(int version, const HttpHeaders& headers) {
  const auto codings = ListOf(headers, "Transfer-Encoding");
  const auto lengths = ListOf(headers, "Content-Length");
  if (!codings.empty()) {
    if (version < 11) {
      return HeadProblem{400, "bad_framing", "HTTP/1.0 has no Transfer-Encoding"};
    }
    if (!lengths.empty()) {
      return HeadProblem{400, "bad_framing",
                         "a request has Content-Length or Transfer-Encoding, not both"};
    }
    if (!SameHeaderName(codings.back(), "chunked")) {
      return HeadProblem{400, "bad_framing", "the last Transfer-Encoding of a request is chunked"};
    }
    if (codings.size() > 1) {
      return HeadProblem{501, "transfer_encoding", "no Transfer-Encoding but chunked is known"};
    }
  }
  if (lengths.size() > 1) {
    return HeadProblem{400, "bad_framing", "a request has one Content-Length"};
  }
  if (codings.empty() && (lengths.empty() || lengths[0] == "0")) {
    return std::nullopt;
  }
  for (const std::string_view coding : ListOf(headers, "Content-Encoding")) {
    if (!coding.empty() && !SameHeaderName(coding, "identity")) {
      return HeadProblem{415,
                         "content_encoding",
                         "bodies are taken as they are: send it without Content-Encoding",
                         {{"Accept-Encoding", "identity"}}};
    }
  }
  return std::nullopt;
}

}  // namespace

bool SameHeaderName(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

std::optional<HttpAuthority> ParseAuthority(std::string_view text) {
  HttpAuthority authority;
  const bool bracketed = !text.empty() && text.front() == '[';
  size_t end = text.find(':');
  if (bracketed) {
    const size_t bracket = text.find(']');
    if (bracket == std::string_view::npos) {
      return std::nullopt;
    }
    end = bracket + 1 == text.size() ? std::string_view::npos : bracket + 1;
    if (end != std::string_view::npos && text[end] != ':') {
      return std::nullopt;
    }
    authority.host = text.substr(1, bracket - 1);
  } else {
    authority.host = text.substr(0, end);
  }
  if (end != std::string_view::npos) authority.port = text.substr(end + 1);
  if (!std::all_of(authority.port.begin(), authority.port.end(), IsDigit)) {
    return std::nullopt;
  }
  for (char& c : authority.host) {
    c = Lower(c);
    const bool named = (c >= 'a' && c <= 'z') || IsDigit(c) || c == '.' || c == '-' || c == '_';
    if (!named && !(bracketed && (c == ':' || c == '%'))) {
      return std::nullopt;
    }
  }
  if (authority.host.ends_with('.')) authority.host.pop_back();
  return authority;
}

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t at = 0; at < text.size(); ++at) {
    if (const int byte = EscapedByte(text, at); byte >= 0) {
      decoded.push_back(static_cast<char>(byte));
      at += 2;
    } else {
      decoded.push_back(text[at]);
    }
  }
  return decoded;
}

std::optional<HeadProblem> ReadTarget(std::string_view target, HttpRequest* request) {
  request->path.clear();
  request->query.clear();
  if (target == "*" && request->method == "OPTIONS") {
    request->path = target;
    return std::nullopt;
  }
  if (!target.starts_with('/')) {
    const size_t scheme = target.find("://");
    if (scheme == std::string_view::npos || (!SameHeaderName(target.substr(0, scheme), "http") &&
                                             !SameHeaderName(target.substr(0, scheme), "https"))) {
      return BadTarget("the target of a request is a path, or http://HOST/PATH");
    }
    target.remove_prefix(scheme + 3);
    const std::string_view host = target.substr(0, target.find_first_of("/?#"));
    const auto authority = ParseAuthority(host);
    if (!authority.has_value() || authority->host.empty()) {
      return BadTarget("the target of the request names no host");
    }
    target.remove_prefix(host.size());
    std::erase_if(request->headers,
                  [](const auto& header) { return SameHeaderName(header.first, "Host"); });
    request->headers.emplace_back("Host", host);
  }
  const size_t question = target.find('?');
  if (question != std::string_view::npos) request->query = target.substr(question + 1);
  if (auto bad = DecodePath(target.substr(0, question), &request->path)) {
    return bad;
  }
  if (request->path.empty()) request->path = "/";
  return std::nullopt;
}

std::optional<HeadProblem> CheckProtocol(int version, const HttpHeaders& headers) {
  if (version / 10 != 1) {
    return HeadProblem{505, "http_version",
                       "HTTP/1.1 and 1.0 are spoken here; gRPC has another address (--listen of "
                       "strata-coordinator)"};
  }
  size_t hosts = 0;
  for (const auto& [name, value] : headers) {
    if (SameHeaderName(name, "Host")) {
      ++hosts;
      if (!ParseAuthority(Trimmed(value)).has_value()) {
        return HeadProblem{400, "bad_host", "the header Host is no host and port"};
      }
    }
  }
  if (hosts > 1 || (hosts == 0 && version >= 11)) {
    return HeadProblem{400, "bad_host", "a request has one header Host"};
  }
  if (auto bad = CheckFraming(version, headers)) {
    return bad;
  }
  for (const std::string_view expected : ListOf(headers, "Expect")) {
    if (version >= 11 && !SameHeaderName(expected, "100-continue")) {
      return HeadProblem{417, "expectation", "nothing but 100-continue can be expected"};
    }
  }
  return std::nullopt;
}

}  // namespace strata
