// A GET that follows redirects, with rules: the token goes to the endpoint's own origin only, and
// https never falls back to http.
#ifndef STRATA_COORDINATOR_PULL_REDIRECTS_H_
#define STRATA_COORDINATOR_PULL_REDIRECTS_H_

#include <string>

#include "absl/status/status.h"
#include "coordinator/pull/http_transport.h"
#include "coordinator/pull/url.h"

namespace strata {

// What is fetched over one or more hops.
class HopReceiver {
 public:
  virtual ~HopReceiver() = default;
  // Of the request that comes next (beside Authorization).
  virtual HttpHeaders RequestHeaders() = 0;
  // A redirect on the way. `own` hops are at the endpoint's origin.
  virtual void OnRedirect(const HttpResponse& response, bool own) = 0;
  virtual absl::Status OnResponse(const HttpResponse& response, bool own) = 0;
  virtual absl::Status OnBody(std::string_view bytes) = 0;
  virtual bool Cancelled() = 0;
};

class RedirectFollower {
 public:
  // `token` may be empty.
  RedirectFollower(HttpTransport& transport, Origin endpoint, std::string token, int max_redirects)
      : transport_(transport),
        endpoint_(std::move(endpoint)),
        token_(std::move(token)),
        max_redirects_(max_redirects) {}

  absl::Status Get(std::string url, HopReceiver& receiver) const;

 private:
  HttpTransport& transport_;
  const Origin endpoint_;
  const std::string token_;
  const int max_redirects_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_PULL_REDIRECTS_H_
