// A cluster's certificates: the authority that signs them, and what each says of its holder. X.509
// (RFC 5280) with keys on the curve P-256; nothing here reads files or the clock.
#ifndef STRATA_COMMON_CERTIFICATES_AUTHORITY_H_
#define STRATA_COMMON_CERTIFICATES_AUTHORITY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata {

// What a certificate lets its holder do. It stands in the subject as the organizational unit.
enum class CertificateRole { kCoordinator, kWorker, kOperator, kClient };

inline constexpr CertificateRole kCertificateRoles[] = {
    CertificateRole::kCoordinator, CertificateRole::kWorker, CertificateRole::kOperator,
    CertificateRole::kClient};

// "coordinator", "worker", "operator", "client".
std::string_view CertificateRoleName(CertificateRole role);

// Who holds a certificate: the subject is O=`cluster`, OU=the role, CN=`name`.
struct CertificateHolder {
  CertificateRole role = CertificateRole::kClient;
  std::string cluster;
  std::string name;

  bool operator==(const CertificateHolder&) const = default;
};

inline constexpr size_t kMaxCertificateNameBytes = 64;  // ub-common-name of RFC 5280.
inline constexpr size_t kMaxCertificateHosts = 32;

// A certificate and the private key that belongs to it, both PEM.
struct CertifiedKey {
  std::string cert;
  std::string key;
};

// From when until when a certificate is to be valid, in seconds since 1970.
struct CertificateTerm {
  int64_t not_before_s = 0;
  int64_t not_after_s = 0;
};

// A private key, PEM (PKCS #8, without a passphrase).
absl::StatusOr<std::string> MakePrivateKey();

// An authority of its own, for the cluster of that name. INVALID_ARGUMENT (BAD_NAME) for a name
// that is empty, longer than kMaxCertificateNameBytes or not printable ASCII.
absl::StatusOr<CertifiedKey> MakeAuthority(const std::string& cluster, const CertificateTerm& term);

// A request (PKCS #10, PEM) for a certificate of `key`: it proves that who sends it has the key,
// and asks for nothing. INVALID_ARGUMENT (TLS_FILE_BAD) where `key` is none.
absl::StatusOr<std::string> MakeCertificateRequest(std::string_view key);

// What tells the key of a request from others: SHA-256 of it, 64 hexadecimal digits.
// INVALID_ARGUMENT (TLS_REQUEST_BAD) as IssueCertificate.
absl::StatusOr<std::string> RequestKeyDigest(std::string_view request);

// The same of the key of a certificate: the first of a PEM text. TLS_FILE_BAD where there is none.
absl::StatusOr<std::string> CertificateKeyDigest(std::string_view cert);

// A certificate (PEM) for the key in `request`, by `authority`. What the request asks for is not
// looked at. `hosts` are the addresses and DNS names by which others reach the holder; holders that
// only dial have none. Coordinators and workers may serve and dial, the others only dial.
// INVALID_ARGUMENT: TLS_REQUEST_BAD (no request, or one not signed with its own key), BAD_NAME,
// BAD_HOST, TLS_FILE_BAD (the authority's certificate or key), TLS_KEY_MISMATCH (they do not belong
// together).
absl::StatusOr<std::string> IssueCertificate(const CertifiedKey& authority,
                                             std::string_view request,
                                             const CertificateHolder& holder,
                                             const std::vector<std::string>& hosts,
                                             const CertificateTerm& term);

// Whom the first certificate of a PEM text names. INVALID_ARGUMENT (TLS_NO_ROLE) where it names no
// role, as one that was not made here; TLS_FILE_BAD where there is no certificate.
absl::StatusOr<CertificateHolder> HolderOf(std::string_view cert);

// The cluster of an authority that MakeAuthority made: its certificate's O. Errors as HolderOf.
absl::StatusOr<std::string> ClusterOf(std::string_view authority);

// The addresses and DNS names of the first certificate of a PEM text, in its order; empty where
// there are none.
std::vector<std::string> CertificateHosts(std::string_view cert);

// From when until when the first certificate is valid. INVALID_ARGUMENT (TLS_FILE_BAD) where there
// is none.
absl::StatusOr<CertificateTerm> TermOf(std::string_view cert);

// Whether the first certificate is signed with the key of that of `authority`; not whether either
// is valid.
bool IsIssuedBy(std::string_view cert, std::string_view authority);

// SHA-256 of each certificate of a PEM text, in its order, as CertificateFingerprint gives it. Ends
// before the first block that is none.
std::vector<std::string> CertificateFingerprints(std::string_view certs);

// SHA-256 of the first certificate (DER), 64 hexadecimal digits: by this somebody who was told it
// knows the certificate. INVALID_ARGUMENT (TLS_FILE_BAD) where there is none.
absl::StatusOr<std::string> CertificateFingerprint(std::string_view cert);

}  // namespace strata

#endif  // STRATA_COMMON_CERTIFICATES_AUTHORITY_H_
