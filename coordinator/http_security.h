// Whether HTTP is encrypted, by the flags: what it shows, where it may listen, and what of that is
// to be told.
#ifndef STRATA_COORDINATOR_HTTP_SECURITY_H_
#define STRATA_COORDINATOR_HTTP_SECURITY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/http/http_tls.h"
#include "coordinator/serve_flags.h"
#include "strata/v1/admin.pb.h"

namespace strata {

class HttpSecurity {
 public:
  // Reads the certificate, where the flags want one (HttpTls::Open's errors), and looks from then
  // on, on a thread of its own, whether it changes. INVALID_ARGUMENT (SECURITY_REQUIRED) where HTTP
  // would be plain text off loopback without --insecure.
  static absl::StatusOr<HttpSecurity> Make(const ServeFlags& f, const Transport& transport);

  // Null: plain text.
  const std::shared_ptr<HttpTls>& tls() const { return tls_; }
  // Whether others than this machine's users could read it.
  bool plain_off_loopback() const { return plain_off_loopback_; }
  // How it is reached, where it listens on `address`, for `status`: that, or "https://" and that.
  std::string Shown(const std::string& address) const;
  // What `status` says of it. Any thread.
  std::vector<v1::Problem> Problems(int64_t now_s) const;

 private:
  HttpSecurity() = default;

  std::string listen_;
  std::shared_ptr<HttpTls> tls_;
  bool own_certificate_ = false;  // Of --http-tls-dir: nobody else looks when it ends.
  bool plain_off_loopback_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_HTTP_SECURITY_H_
