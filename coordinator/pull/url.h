// URLs: origins, references, percent encoding.
#ifndef STRATA_COORDINATOR_PULL_URL_H_
#define STRATA_COORDINATOR_PULL_URL_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace strata {

// Scheme, host and port, which together say who is spoken to.
struct Origin {
  std::string scheme;  // "http" or "https".
  std::string host;
  std::string port;
  bool operator==(const Origin&) const = default;
};

// INVALID_ARGUMENT for anything but http and https, and for URLs with user names.
absl::StatusOr<Origin> OriginOf(const std::string& url);
// `reference` (a Location header) as seen from `base`.
absl::StatusOr<std::string> ResolveReference(const std::string& base, const std::string& reference);
// Everything but letters, digits and -._~ as %XX.
std::string PercentEncode(std::string_view text);
// For messages: the query of a URL may hold signatures.
std::string WithoutQuery(std::string_view url);
bool IsLoopback(const std::string& url);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PULL_URL_H_
