// The tokens that machines and people join by. No thread, no clock.
#ifndef STRATA_COORDINATOR_JOINING_TOKEN_BOOK_H_
#define STRATA_COORDINATOR_JOINING_TOKEN_BOOK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/certificates/authority.h"

namespace strata {

struct TokenTerms {
  CertificateRole role = CertificateRole::kWorker;
  int64_t expires_at_s = 0;  // Since 1970.
  uint32_t uses = 1;
};

// Keeps digests of secrets only, for as long as it lives. Not thread-safe.
class TokenBook {
 public:
  // At most so many tokens that can still be used.
  explicit TokenBook(size_t most) : most_(most) {}

  // RESOURCE_EXHAUSTED (TOO_MANY_TOKENS), with the limit.
  absl::Status Add(std::string_view secret, const TokenTerms& terms, int64_t now_s);

  // What whoever has `secret` may become. PERMISSION_DENIED: TOKEN_UNKNOWN, TOKEN_EXPIRED,
  // TOKEN_USED. Nothing is used up by asking.
  absl::StatusOr<CertificateRole> RoleOf(std::string_view secret, int64_t now_s) const;
  // One use less. CHECKs that RoleOf would give a role.
  void Use(std::string_view secret, int64_t now_s);

 private:
  // Forgets what can be used no more once nobody is likely to try it, or there is too much of it.
  void Forget(int64_t now_s);

  const size_t most_;
  std::map<std::string, TokenTerms, std::less<>> tokens_;  // By SHA-256 of the secret.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_JOINING_TOKEN_BOOK_H_
