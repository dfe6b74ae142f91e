#include "coordinator/http_security.h"

#include <chrono>

#include "common/app/log.h"
#include "common/rpc/address.h"
#include "common/rpc/tls_files.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kLookEvery{2};

void TellOfReload(const absl::Status& reloaded, const std::string& path) {
  if (reloaded.ok()) {
    LogInfo({}, "HTTP shows the new certificate in " + path + " from now on");
  } else {
    LogWarn({}, "HTTP goes on with the certificate that it has: " + Describe(reloaded));
  }
}

}  // namespace

absl::StatusOr<HttpSecurity> HttpSecurity::Make(const ServeFlags& f, const Transport& transport) {
  HttpSecurity made;
  made.listen_ = f.http_listen;
  ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(f.http_listen));
  made.own_certificate_ = !f.http_tls_dir.empty();
  if (f.http_tls || made.own_certificate_) {
    const bool own = made.own_certificate_;
    // That of --tls-dir may have been renewed, and then lies elsewhere.
    const auto dir = [own_dir = f.http_tls_dir, live = transport.live()] {
      return !own_dir.empty() ? own_dir : live == nullptr ? "" : live->files()->dir;
    };
    ASSIGN_OR_RETURN(made.tls_, HttpTls::Open(dir, own ? "--http-tls-dir" : "--tls-dir"));
    made.tls_->Watch(kLookEvery, [dir](const absl::Status& reloaded) {
      TellOfReload(reloaded, dir() + "/cert.pem");
    });
    return made;
  }
  made.plain_off_loopback_ = !IsLoopback(at.host);
  if (made.plain_off_loopback_ && !f.security.insecure) {
    return Error(absl::StatusCode::kInvalidArgument, "SECURITY_REQUIRED",
                 "--http-listen " + f.http_listen +
                     " is off loopback, where prompts, answers and API keys would travel in plain "
                     "text")
        .Hint(f.security.tls_dir.empty()
                  ? "give --http-tls-dir DIR (cert.pem, key.pem), --tls-dir with --http-tls, or "
                    "--insecure on a network that you trust"
                  : "give --http-tls, which shows the certificate of --tls-dir, or "
                    "--http-tls-dir DIR (cert.pem, key.pem) with another");
  }
  return made;
}

std::string HttpSecurity::Shown(const std::string& address) const {
  return tls_ == nullptr ? address : "https://" + address;
}

std::vector<v1::Problem> HttpSecurity::Problems(int64_t now_s) const {
  std::vector<v1::Problem> problems;
  const auto add = [&problems](const std::string& what, const std::string& hint) {
    v1::Problem& problem = problems.emplace_back();
    problem.set_what(what);
    problem.set_do_(hint);
  };
  if (plain_off_loopback_) {
    add("HTTP is in plain text: prompts, answers and API keys can be read on their way to " +
            listen_,
        "start strata-coordinator with --tls-dir and --http-tls, or with --http-tls-dir");
  }
  if (tls_ == nullptr) {
    return problems;
  }
  if (const absl::Status problem = tls_->problem(); !problem.ok()) {
    const v1::ErrorDetail detail = DetailOf(problem);
    add("HTTP goes on with the certificate that it has: " + detail.message(), detail.hint());
  }
  const CertificateTimes times = {
      .subject = "", .not_before_s = tls_->not_before_s(), .not_after_s = tls_->not_after_s()};
  if (const std::string ends = EndsSoon(times, now_s); own_certificate_ && !ends.empty()) {
    add("HTTP's certificate " + ends + " (" + tls_->cert_path() + ")",
        "put a new one there; it is taken without a restart");
  }
  return problems;
}

}  // namespace strata
