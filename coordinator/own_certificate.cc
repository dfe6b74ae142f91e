#include "coordinator/own_certificate.h"

#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/app/log.h"
#include "common/certificates/authority.h"
#include "common/discovery/found_coordinators.h"
#include "common/joining/followed_files.h"
#include "common/platform/platform.h"
#include "common/rpc/address.h"
#include "common/status.h"

namespace strata {
namespace {

// The coordinator asks itself.
class DeskAsSource : public CertificateSource {
 public:
  DeskAsSource(JoiningDesk* desk, std::shared_ptr<LiveTls> live)
      : desk_(desk), live_(std::move(live)) {}

  absl::StatusOr<v1::Trust> GetTrust(const v1::GetTrustRequest& /*request*/) override {
    return desk_->Trust(false);
  }
  absl::StatusOr<v1::RenewCertificateResponse> Renew(
      const v1::RenewCertificateRequest& request) override {
    return desk_->Renew(live_->files()->cert, request);
  }

 private:
  JoiningDesk* const desk_;
  const std::shared_ptr<LiveTls> live_;
};

}  // namespace

TransportSecurity SecurityOf(const ServeFlags& f,
                             std::function<void(const absl::Status& why)> on_refused) {
  TransportSecurity security = f.security;
  security.on_refused_client = [on_refused = std::move(on_refused)](const absl::Status& why) {
    LogWarn({}, "a connection was refused: " + Describe(why));
    on_refused(why);
  };
  FollowTlsFiles(f.data_dir, &security);
  return security;
}

std::unique_ptr<CertificateKeeper> KeepOwnCertificate(const ServeFlags& f,
                                                      const Transport& transport,
                                                      JoiningDesk* desk) {
  if (transport.live() == nullptr || f.authority.empty()) {
    return nullptr;
  }
  CertificateKeeperOptions keeping;
  keeping.renew_before_s = std::chrono::duration_cast<std::chrono::seconds>(f.renew_before).count();
  keeping.on_failed = [](const absl::Status& why) {
    LogWarn({}, "the coordinator's own certificate cannot be renewed: " + Describe(why));
  };
  auto keeper = std::make_unique<CertificateKeeper>(
      std::move(keeping), transport.live(), std::make_unique<DeskAsSource>(desk, transport.live()));
  keeper->Start();
  return keeper;
}

Announcement AnnouncementOf(JoiningDesk* desk, const std::string& address,
                            const std::string& join_address) {
  const v1::Trust trust = desk->Trust(false);
  const auto port = [](const std::string& of) {
    const auto at = ParseHostPort(of);
    return at.ok() ? at->port : uint16_t{0};
  };
  return {.name = ClusterOf(trust.authorities()).value_or("strata") + " on " + HostName(),
          .port = port(join_address),
          .facts = {absl::StrCat(kAuthorityFact, "=", trust.signer_sha256()),
                    absl::StrCat(kPortFact, "=", port(address))}};
}

std::vector<v1::Problem> ProblemsOf(const Announcer& announcer) {
  const absl::Status problem = announcer.problem();
  std::vector<v1::Problem> problems;
  const auto add = [&problems](const std::string& what, const std::string& hint) {
    v1::Problem& one = problems.emplace_back();
    one.set_what(what);
    one.set_do_(hint);
  };
  if (!problem.ok()) {
    const v1::ErrorDetail detail = DetailOf(problem);
    add("the coordinator is not announced on the local network: " + detail.message(),
        detail.hint());
  }
  return problems;
}

}  // namespace strata
