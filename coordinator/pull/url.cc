#include "coordinator/pull/url.h"

#include <curl/curl.h>

#include <memory>

#include "common/status.h"

namespace strata {
namespace {

struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using UrlHandle = std::unique_ptr<CURLU, UrlDeleter>;

std::string Part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) {
    return "";
  }
  std::string copy = text;
  curl_free(text);
  return copy;
}

absl::Status BadUrl(std::string_view url, std::string_view why) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_URL",
               std::string(why) + ": " + WithoutQuery(url));
}

}  // namespace

absl::StatusOr<Origin> OriginOf(const std::string& text) {
  const UrlHandle url(curl_url());
  if (url == nullptr || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    return BadUrl(text, "not a URL");
  }
  Origin origin = {Part(url.get(), CURLUPART_SCHEME), Part(url.get(), CURLUPART_HOST),
                   Part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  if (origin.scheme != "http" && origin.scheme != "https") {
    return BadUrl(text, "only http and https are spoken");
  }
  if (!Part(url.get(), CURLUPART_USER).empty() || !Part(url.get(), CURLUPART_PASSWORD).empty()) {
    return BadUrl("", "a URL with a user name is refused");
  }
  for (char& c : origin.host) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return origin;
}

absl::StatusOr<std::string> ResolveReference(const std::string& base,
                                             const std::string& reference) {
  const UrlHandle url(curl_url());
  if (url == nullptr || curl_url_set(url.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK ||
      curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), CURLU_URLENCODE) != CURLUE_OK) {
    return BadUrl(reference, "a redirect to what is no URL");
  }
  return Part(url.get(), CURLUPART_URL);
}

std::string PercentEncode(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out.push_back(c);
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

std::string WithoutQuery(std::string_view url) { return std::string(url.substr(0, url.find('?'))); }

bool IsLoopback(const std::string& url) {
  const absl::StatusOr<Origin> origin = OriginOf(url);
  return origin.ok() && (origin->host == "localhost" || origin->host == "[::1]" ||
                         origin->host.substr(0, 4) == "127.");
}

}  // namespace strata
