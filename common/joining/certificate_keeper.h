// A running process keeps its certificate from lapsing, and trusts whom its cluster trusts.
#ifndef STRATA_COMMON_JOINING_CERTIFICATE_KEEPER_H_
#define STRATA_COMMON_JOINING_CERTIFICATE_KEEPER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/rpc/live_tls.h"
#include "common/rpc/transport.h"
#include "strata/v1/certificates.pb.h"

namespace strata {

// Who signs certificates of the cluster. Called on one thread; may wait.
class CertificateSource {
 public:
  virtual ~CertificateSource() = default;
  virtual absl::StatusOr<v1::Trust> GetTrust(const v1::GetTrustRequest& request) = 0;
  virtual absl::StatusOr<v1::RenewCertificateResponse> Renew(
      const v1::RenewCertificateRequest& request) = 0;
};

// The coordinator at `address`, asked with the certificate that is in use at the time. Each call
// waits for some seconds at most.
std::unique_ptr<CertificateSource> CoordinatorAsSource(Transport transport, std::string address);

// Whether files are to be renewed, by what the cluster says of its authorities: they end soon
// (RenewalIsDue), are not of the one that signs, or trust others than the cluster does. Never where
// they name no role, or the cluster has no authority.
bool WantsRenewal(const TlsFiles& files, const v1::Trust& trust, int64_t renew_before_s,
                  int64_t now_s);

// A new key and certificate in `folder` (WriteTlsFolder), in place of `files`, once both have been
// checked. What `source` and WriteTlsFolder say; INTERNAL (TLS_BAD_ANSWER) for a certificate that
// is not what was asked for.
absl::Status RenewFiles(const TlsFiles& files, const std::string& folder,
                        CertificateSource* source);

struct CertificateKeeperOptions {
  std::string node{};          // Of a worker.
  int64_t renew_before_s = 0;  // RenewalIsDue's.
  std::chrono::milliseconds ask_every{3000};
  // On the keeper's thread. What the cluster says now of whom to trust; that renewing failed, once
  // for each sentence.
  std::function<void(const v1::Trust& trust)> on_trust{};
  std::function<void(const absl::Status& why)> on_failed{};
};

class CertificateKeeper {
 public:
  // Renewed files go to the live files' renewed_dir. `live` has begun to Follow; where the system
  // cannot, nothing is renewed.
  CertificateKeeper(CertificateKeeperOptions options, std::shared_ptr<LiveTls> live,
                    std::unique_ptr<CertificateSource> source);
  ~CertificateKeeper();
  CertificateKeeper(const CertificateKeeper&) = delete;
  CertificateKeeper& operator=(const CertificateKeeper&) = delete;

  // Asks once, and renews if it is time. Not beside Start.
  void KeepOnce(int64_t now_s);
  // Does so again and again on a thread of its own, at once first.
  void Start();

 private:
  // Waits until it is time to ask again. Whether the keeper stops.
  bool WaitForStop();

  const CertificateKeeperOptions options_;
  const std::shared_ptr<LiveTls> live_;
  const std::unique_ptr<CertificateSource> source_;
  // Of KeepOnce: when it may be tried again.
  int64_t not_before_s_ = 0;
  int64_t pause_s_ = 0;
  std::string last_told_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace strata

#endif  // STRATA_COMMON_JOINING_CERTIFICATE_KEEPER_H_
