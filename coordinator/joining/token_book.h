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
#include "coordinator/store/admin_store.h"

namespace strata {

struct TokenTerms {
  CertificateRole role = CertificateRole::kWorker;
  int64_t expires_at_s = 0;  // Since 1970.
  uint32_t uses = 1;
};

// Keeps digests of secrets only. Not thread-safe.
class TokenBook {
 public:
  // At most so many tokens that can still be used. `store`, which outlives the book, has them after
  // a restart; null: nobody has.
  explicit TokenBook(size_t most, AdminStore* store = nullptr) : most_(most), store_(store) {}

  // Reads what the store has. Once, before anything else. DATA_LOSS (STORE_CORRUPT).
  absl::Status Load();

  // RESOURCE_EXHAUSTED (TOO_MANY_TOKENS), with the limit; the store's errors.
  absl::Status Add(std::string_view secret, const TokenTerms& terms, int64_t now_s);

  // What whoever has `secret` may become. PERMISSION_DENIED: TOKEN_UNKNOWN, TOKEN_EXPIRED,
  // TOKEN_USED. Nothing is used up by asking.
  absl::StatusOr<CertificateRole> RoleOf(std::string_view secret, int64_t now_s) const;
  // One use less, in the store first, together with `more`; the store's errors, and then nothing is
  // used. CHECKs that RoleOf would give a role.
  absl::Status Use(std::string_view secret, int64_t now_s, const StoredRecord* more = nullptr);

 private:
  // Forgets what can be used no more once nobody is likely to try it, or there is too much of it.
  absl::Status Forget(int64_t now_s);

  const size_t most_;
  AdminStore* const store_;
  std::map<std::string, TokenTerms, std::less<>> tokens_;  // By SHA-256 of the secret.
};

// By what people and the audit call a token: a part of its digest, of which nothing follows about
// the secret.
std::string TokenName(std::string_view secret);

}  // namespace strata

#endif  // STRATA_COORDINATOR_JOINING_TOKEN_BOOK_H_
