// The HTTP listener: small requests in, small answers out. The APIs of docs/API.md are laid on it
// as routes; today it serves /health and /livez.
#ifndef STRATA_COORDINATOR_HTTP_HTTP_SERVER_H_
#define STRATA_COORDINATOR_HTTP_HTTP_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace strata {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // Without query.
  std::string query;   // Without '?'.
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
};

struct HttpOptions {
  uint64_t max_connections = 1024;
  uint64_t max_header_bytes = 16 * 1024;
  uint64_t max_body_bytes = 1024 * 1024;
  // A connection that sends or takes nothing for this long is closed.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

class HttpServer {
 public:
  // Answers one request; called on the server's thread, so it must not block.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Listens on "host:port" (port 0 picks one) and serves until destroyed. UNAVAILABLE names the
  // address when it cannot be had.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           const HttpOptions& options,
                                                           Handler handler);
  virtual ~HttpServer() = default;
  virtual std::string address() const = 0;  // As bound.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_HTTP_SERVER_H_
