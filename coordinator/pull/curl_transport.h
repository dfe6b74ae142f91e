// HttpTransport over libcurl. Proxies are those of the usual environment variables.
#ifndef STRATA_COORDINATOR_PULL_CURL_TRANSPORT_H_
#define STRATA_COORDINATOR_PULL_CURL_TRANSPORT_H_

#include <memory>

#include "coordinator/pull/http_transport.h"

namespace strata {

struct HttpTimeouts {
  int connect_timeout_ms = 10'000;
  int stall_timeout_ms = 30'000;  // Without a byte.
};

std::unique_ptr<HttpTransport> MakeCurlTransport(const HttpTimeouts& timeouts = {});

}  // namespace strata

#endif  // STRATA_COORDINATOR_PULL_CURL_TRANSPORT_H_
