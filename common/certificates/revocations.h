// Whose certificates are not accepted any more, before they end.
#ifndef STRATA_COMMON_CERTIFICATES_REVOCATIONS_H_
#define STRATA_COMMON_CERTIFICATES_REVOCATIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/certificates/authority.h"

namespace strata {

// Every certificate of that role and name that was issued by then (IssuedAtS): a later one is good.
struct Revocation {
  CertificateRole role = CertificateRole::kClient;
  std::string name;
  int64_t issued_until_s = 0;

  bool operator==(const Revocation&) const = default;
};

// More are not kept: the oldest go, which are of certificates that have ended long ago.
inline constexpr size_t kMaxRevocations = 10'000;

// A value.
class Revocations {
 public:
  // One of a role and name takes the place of an earlier one.
  void Add(const Revocation& revocation);
  const std::vector<Revocation>& all() const { return all_; }

  // The earliest second at which a certificate may be issued that is not revoked; `now_s` or later.
  int64_t NextIssueS(const CertificateHolder& holder, int64_t now_s) const;

  // PERMISSION_DENIED (TLS_REVOKED) for a certificate (PEM) that is revoked; the message begins
  // with `whose` it is. OK for one that names no role.
  absl::Status Check(std::string_view cert, const std::string& whose) const;

  bool operator==(const Revocations&) const = default;

 private:
  const Revocation* Find(CertificateRole role, const std::string& name) const;

  std::vector<Revocation> all_;  // The latest last.
};

}  // namespace strata

#endif  // STRATA_COMMON_CERTIFICATES_REVOCATIONS_H_
