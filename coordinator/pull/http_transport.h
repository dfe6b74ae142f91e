// One HTTP GET, without redirects or retries: what pulling needs of the network.
#ifndef STRATA_COORDINATOR_PULL_HTTP_TRANSPORT_H_
#define STRATA_COORDINATOR_PULL_HTTP_TRANSPORT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace strata {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 0;
  HttpHeaders headers;  // Names in lower case, values trimmed.
  // The first value of a header, "" if there is none. `name` in lower case.
  std::string_view Header(std::string_view name) const;
};

// Gets a response as it arrives, on the thread that called Get. An error that it returns ends the
// transfer and is what Get returns.
class HttpReceiver {
 public:
  virtual ~HttpReceiver() = default;
  // Once, before the body.
  virtual absl::Status OnResponse(const HttpResponse& response) = 0;
  virtual absl::Status OnBody(std::string_view bytes) = 0;
  // Asked several times a second.
  virtual bool Cancelled() = 0;
};

class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  // Blocks until the response is complete. Any status is OK here. UNAVAILABLE: no connection, one
  // that broke or stalled, or a body shorter than announced. CANCELLED. Any thread.
  virtual absl::Status Get(const std::string& url, const HttpHeaders& headers,
                           HttpReceiver& receiver) = 0;
};

// The CANCELLED of all transfers.
absl::Status CancelledTransfer();

}  // namespace strata

#endif  // STRATA_COORDINATOR_PULL_HTTP_TRANSPORT_H_
