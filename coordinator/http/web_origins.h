// Which web pages may use the HTTP API. A browser sends a page's requests to any address that the
// user's machine reaches, a coordinator on loopback too, and says whose they are: in Origin, and,
// where the page's own name was made to lead there (DNS rebinding), in Host.
#ifndef STRATA_COORDINATOR_HTTP_WEB_ORIGINS_H_
#define STRATA_COORDINATOR_HTTP_WEB_ORIGINS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/http/http_server.h"

namespace strata {

struct WebOriginOptions {
  bool loopback = false;  // The API is reached from its own machine only.
  // Whose pages may use it besides, as "https://app.example", "null" or "*" for all.
  std::vector<std::string> origins = {};
  // Names by which it is reached besides loopback's, as "llm.example" or "*" for all.
  std::vector<std::string> hosts = {};
};

// Lists of these, separated by commas. INVALID_ARGUMENT says what an entry must be.
absl::StatusOr<std::vector<std::string>> ParseWebOrigins(std::string_view list);
absl::StatusOr<std::vector<std::string>> ParseWebHosts(std::string_view list);

// Const; any thread.
class WebOrigins {
 public:
  explicit WebOrigins(WebOriginOptions options) : options_(std::move(options)) {}

  // Of a coordinator without keys, which serves whoever reaches it: PERMISSION_DENIED
  // (HOST_NOT_ALLOWED, ORIGIN_NOT_ALLOWED) for what a foreign page sends. Clients that are no
  // browsers send no Origin.
  absl::Status Check(const HttpRequest& head) const;
  // Headers of an answer, whose page may read it: none without an origin, and for a foreign one.
  HttpHeaders AnswerHeaders(const HttpRequest& head) const;
  // Whether a browser asks what its page may send.
  static bool IsPreflight(const HttpRequest& head);
  // The answer to that, for a route with `methods`; or why not, as Check.
  absl::StatusOr<HttpResponse> Preflight(const HttpRequest& head, const std::string& methods) const;

 private:
  bool AllowsHost(const std::string& host) const;
  bool AllowsOrigin(const std::string& origin, const std::string* host) const;
  absl::Status Foreign(const HttpRequest& head) const;

  const WebOriginOptions options_;
};

// A responder whose answers have `headers` too.
std::shared_ptr<HttpResponder> WithHeaders(std::shared_ptr<HttpResponder> responder,
                                           HttpHeaders headers);

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_WEB_ORIGINS_H_
