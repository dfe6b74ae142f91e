// Certificates for those who come with a token. No thread, no clock.
#ifndef STRATA_COORDINATOR_JOINING_JOINING_H_
#define STRATA_COORDINATOR_JOINING_JOINING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/certificates/authority.h"
#include "common/certificates/authority_folder.h"
#include "common/certificates/revocations.h"
#include "coordinator/joining/token_book.h"
#include "coordinator/store/admin_store.h"
#include "strata/v1/certificates.pb.h"
#include "strata/v1/joining.pb.h"

namespace strata {

struct JoiningOptions {
  AuthoritySet authority;
  size_t max_tokens = 1024;  // That can still be used.
  int64_t certificate_days = 365;
  // Has tokens and the digests of workers' keys after a restart, and outlives this. Null: nobody.
  AdminStore* store = nullptr;
};

inline constexpr int64_t kDefaultTokenS = 3600;
inline constexpr int64_t kMaxTokenS = 30 * 24 * 3600;
inline constexpr uint32_t kMaxTokenUses = 10'000;

// Not thread-safe.
class Joining {
 public:
  // INVALID_ARGUMENT where the authority cannot sign: TLS_FILE_BAD, TLS_KEY_MISMATCH, TLS_NO_ROLE;
  // the store's errors.
  static absl::StatusOr<Joining> Make(JoiningOptions options);

  // What a token says, by which as many may join as were asked for; `secret` is kJoinSecretBytes
  // random bytes. The addresses are left to the caller. INVALID_ARGUMENT (BAD_TOKEN_TERMS),
  // RESOURCE_EXHAUSTED (TOO_MANY_TOKENS).
  absl::StatusOr<v1::JoinToken> CreateToken(const v1::CreateTokenRequest& request,
                                            const std::string& secret, int64_t now_s);

  // A certificate of the token's role, and one use of the token less. A worker's name must not be a
  // member's (`is_member`), unless it comes with the key that got a certificate of that name here:
  // ALREADY_EXISTS (NAME_TAKEN). Errors as in JoiningService, and the store's; none takes a use.
  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request,
                                        const std::function<bool(const std::string&)>& is_member,
                                        int64_t now_s);

  // A certificate for the holder of `cert` (PEM), which is good: of its role, name and hosts, and
  // for as long, but for no longer than of those who join. FAILED_PRECONDITION (NOT_RENEWABLE) for
  // one that names no role, or another cluster; INVALID_ARGUMENT (TLS_REQUEST_BAD).
  absl::StatusOr<v1::RenewCertificateResponse> Renew(const std::string& cert,
                                                     const std::string& certificate_request,
                                                     int64_t now_s) const;

  // Who signs from now on, and who else is trusted. Errors as Make; then all is as before.
  absl::Status SetAuthority(AuthoritySet authority);
  const AuthoritySet& authority() const { return options_.authority; }
  // SHA-256 (hexadecimal) of the one that signs.
  std::string signer_sha256() const;
  const std::string& cluster() const { return cluster_; }

  // What is issued from now on is not revoked by these.
  void SetRevocations(Revocations revocations) { revocations_ = std::move(revocations); }

 private:
  Joining(JoiningOptions options, std::string cluster, std::string fingerprint);

  absl::Status Load();
  // Where there are more keys than kMaxKeys, that of a name which is no member's.
  void ForgetOneOf(const std::function<bool(const std::string&)>& is_member);

  JoiningOptions options_;
  std::string cluster_;
  std::string fingerprint_;  // Of the authority: 32 bytes.
  TokenBook tokens_;
  Revocations revocations_;
  std::map<std::string, std::string> keys_;  // Of workers, digests by name.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_JOINING_JOINING_H_
