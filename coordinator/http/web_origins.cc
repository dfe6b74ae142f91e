#include "coordinator/http/web_origins.h"

#include <algorithm>
#include <utility>

#include "common/rpc/address.h"
#include "common/status.h"
#include "coordinator/http/http_head.h"

namespace strata {
namespace {

constexpr std::string_view kAll = "*";
constexpr std::string_view kLocalhost = "localhost";

std::string Lowered(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool Has(const std::vector<std::string>& list, std::string_view entry) {
  return std::find(list.begin(), list.end(), entry) != list.end();
}

std::vector<std::string> Entries(std::string_view list) {
  std::vector<std::string> entries;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view entry = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    if (!entry.empty()) entries.push_back(Lowered(entry));
  }
  return entries;
}

// Names that lead to this machine wherever they are looked up, and its own addresses.
bool IsOwnHost(const std::string& host) {
  return IsLoopback(host) || host == kLocalhost || host.ends_with(".localhost") ||
         (!host.empty() && IsAnyAddress(host));
}

bool IsAddress(const std::string& host) {
  return host.find(':') != std::string::npos ||
         host.find_first_not_of("0123456789.") == std::string::npos;
}

// An origin's scheme, host and port; none for one that is no web server's.
struct WebOrigin {
  std::string scheme;
  HttpAuthority authority;
};
std::optional<WebOrigin> ParseOrigin(std::string_view origin) {
  const size_t colon = origin.find("://");
  if (colon == std::string_view::npos) {
    return std::nullopt;
  }
  auto authority = ParseAuthority(origin.substr(colon + 3));
  const std::string scheme = Lowered(origin.substr(0, colon));
  if (!authority.has_value() || authority->host.empty() ||
      (scheme != "http" && scheme != "https")) {
    return std::nullopt;
  }
  return WebOrigin{scheme, *std::move(authority)};
}

std::string PortOf(const std::string& scheme, const std::string& port) {
  return !port.empty() ? port : scheme == "https" ? "443" : "80";
}

absl::Status BadEntry(const std::string& flag, const std::string& entry,
                      const std::string& wanted) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAG",
               "--" + flag + ": '" + entry + "' is not " + wanted);
}

class HeadedResponder : public ForwardingResponder {
 public:
  HeadedResponder(std::shared_ptr<HttpResponder> to, HttpHeaders headers)
      : ForwardingResponder(std::move(to)), headers_(std::move(headers)) {}

  void Answer(HttpResponse response) override {
    ForwardingResponder::Answer(Headed(std::move(response)));
  }
  void Begin(HttpResponse head) override { ForwardingResponder::Begin(Headed(std::move(head))); }

 private:
  HttpResponse Headed(HttpResponse response) const {
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    return response;
  }

  const HttpHeaders headers_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseWebOrigins(std::string_view list) {
  std::vector<std::string> origins = Entries(list);
  for (const std::string& origin : origins) {
    const size_t scheme = origin.find("://");
    const bool origin_like = scheme != std::string::npos && scheme > 0 &&
                             scheme + 3 < origin.size() &&
                             origin.find('/', scheme + 3) == std::string::npos;
    if (origin != kAll && origin != "null" && !origin_like) {
      return BadEntry("http-allow-origins", origin,
                      "an origin, as in https://app.example or http://10.0.0.5:3000, null, or *");
    }
  }
  return origins;
}

absl::StatusOr<std::vector<std::string>> ParseWebHosts(std::string_view list) {
  std::vector<std::string> hosts = Entries(list);
  for (std::string& host : hosts) {
    if (host == kAll) {
      continue;
    }
    const auto parsed = ParseAuthority(host);
    if (!parsed.has_value() || parsed->host.empty() || !parsed->port.empty()) {
      return BadEntry("http-allow-hosts", host, "a host's name or address without port, or *");
    }
    host = parsed->host;
  }
  return hosts;
}

bool WebOrigins::AllowsHost(const std::string& host) const {
  if (Has(options_.hosts, kAll) || Has(options_.hosts, host) || IsOwnHost(host)) {
    return true;
  }
  // Nobody can make an address lead elsewhere. Other names of this machine are not known here:
  // where others reach it, they are taken unless it was said which there are.
  return !options_.loopback && (IsAddress(host) || options_.hosts.empty());
}

bool WebOrigins::AllowsOrigin(const std::string& origin, const std::string* host) const {
  const std::string lower = Lowered(origin);
  if (Has(options_.origins, kAll) || Has(options_.origins, lower)) {
    return true;
  }
  const auto page = ParseOrigin(lower);
  if (!page.has_value()) {
    return false;
  }
  const auto own = host == nullptr ? std::nullopt : ParseAuthority(*host);
  if (own.has_value() && own->host == page->authority.host &&
      PortOf(page->scheme, own->port) == PortOf(page->scheme, page->authority.port)) {
    return true;  // The page came from here, or from a proxy before it.
  }
  return options_.loopback && IsOwnHost(page->authority.host);
}

absl::Status WebOrigins::Foreign(const HttpRequest& head) const {
  const std::string* origin = head.Header("Origin");
  const std::string* host = head.Header("Host");
  if (origin != nullptr && !AllowsOrigin(*origin, host)) {
    return Error(absl::StatusCode::kPermissionDenied, "ORIGIN_NOT_ALLOWED",
                 "web pages of the origin '" + *origin + "' may not use this coordinator")
        .Hint("allow it with --http-allow-origins of strata-coordinator");
  }
  return absl::OkStatus();
}

absl::Status WebOrigins::Check(const HttpRequest& head) const {
  if (const std::string* named = head.Header("Host")) {
    const auto host = ParseAuthority(*named);
    if (!host.has_value() || (!host->host.empty() && !AllowsHost(host->host))) {
      return Error(absl::StatusCode::kPermissionDenied, "HOST_NOT_ALLOWED",
                   "this coordinator is not reached by the name '" + *named + "'")
          .Hint(options_.loopback ? "use localhost, allow the name with --http-allow-hosts of "
                                    "strata-coordinator, or make API keys with `strata key create`"
                                  : "use its address, or allow the name with --http-allow-hosts of "
                                    "strata-coordinator");
    }
  }
  RETURN_IF_ERROR(Foreign(head));
  // What a page has fetched without CORS (an image, a script) has no Origin.
  const std::string* site = head.Header("Sec-Fetch-Site");
  const std::string* mode = head.Header("Sec-Fetch-Mode");
  if (head.Header("Origin") == nullptr && site != nullptr && *site == "cross-site" &&
      (mode == nullptr || *mode != "navigate") && !Has(options_.origins, kAll)) {
    return Error(absl::StatusCode::kPermissionDenied, "ORIGIN_NOT_ALLOWED",
                 "web pages of other sites may not use this coordinator")
        .Hint("allow all with --http-allow-origins '*' of strata-coordinator");
  }
  return absl::OkStatus();
}

HttpHeaders WebOrigins::AnswerHeaders(const HttpRequest& head) const {
  const std::string* origin = head.Header("Origin");
  if (origin == nullptr || !AllowsOrigin(*origin, head.Header("Host"))) {
    return {};
  }
  return {{"Access-Control-Allow-Origin", *origin},
          {"Access-Control-Expose-Headers", "X-Strata-Request-Id, Retry-After"},
          {"Vary", "Origin"}};
}

bool WebOrigins::IsPreflight(const HttpRequest& head) {
  return head.method == "OPTIONS" && head.Header("Origin") != nullptr &&
         head.Header("Access-Control-Request-Method") != nullptr;
}

absl::StatusOr<HttpResponse> WebOrigins::Preflight(const HttpRequest& head,
                                                   const std::string& methods) const {
  RETURN_IF_ERROR(Foreign(head));
  HttpResponse response{200, "text/plain", "", AnswerHeaders(head)};
  response.headers.emplace_back("Access-Control-Allow-Methods", methods);
  if (const std::string* wanted = head.Header("Access-Control-Request-Headers")) {
    response.headers.emplace_back("Access-Control-Allow-Headers", *wanted);
  }
  if (head.Header("Access-Control-Request-Private-Network") != nullptr) {
    response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

std::shared_ptr<HttpResponder> WithHeaders(std::shared_ptr<HttpResponder> responder,
                                           HttpHeaders headers) {
  return std::make_shared<HeadedResponder>(std::move(responder), std::move(headers));
}

}  // namespace strata
