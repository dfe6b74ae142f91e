// The three files of --tls-dir: read, and checked before anything listens or dials with them.
#ifndef STRATA_COMMON_RPC_TLS_FILES_H_
#define STRATA_COMMON_RPC_TLS_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/certificates/authority.h"

namespace strata {

// From when until when a certificate is valid, in seconds since 1970; what people call it.
struct CertificateTimes {
  std::string subject;  // Printable.
  int64_t not_before_s = 0;
  int64_t not_after_s = 0;
};

struct TlsFiles {
  std::string dir;
  std::string ca, cert, key;  // PEM.
  // Whom cert.pem names, and its own times; nobody where it names no role, as one that `strata
  // cluster` did not make.
  std::optional<CertificateHolder> holder;
  CertificateTerm term;
  // The one that ends first of cert.pem's and of the authorities' that it hangs on.
  CertificateTimes ends_first;
  std::string ends_first_file;  // "cert.pem" or "ca.pem".
  // Whether cert.pem is of an authority in ca.pem (TLS_WRONG_CA where it is not). Who serves must
  // have that: all members of a cluster trust one ca.pem. A client may know its servers by another
  // authority than its own.
  absl::Status own_chain;
};

// Reads `dir`. Errors name the file and what to do: TLS_FILE_MISSING (NOT_FOUND),
// TLS_FILE_UNREADABLE, TLS_FILE_BAD (no PEM, no certificate, a key with a passphrase),
// TLS_KEY_MISMATCH, TLS_EXPIRED, TLS_NOT_YET_VALID; the latter two at `now_s` (since 1970).
absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& dir, int64_t now_s);

// Whether a peer's certificate (PEM, and what it sent along, PEM too) may be a client's here: of an
// authority in `ca`, valid now, not made for servers only. Reasons as above; the message begins
// with `whose` certificate it is.
absl::Status CheckPeerCertificate(const std::string& ca, std::string_view cert,
                                  std::string_view chain, const std::string& whose);

// The first certificate's times. INVALID_ARGUMENT where there is none.
absl::StatusOr<CertificateTimes> TimesOf(std::string_view pem);

// TLS_WRONG_NAME unless the certificate has `host`, a name or an address; says what it has.
absl::Status CheckCertificateName(std::string_view pem, const std::string& host,
                                  const std::string& whose);

// What is to be said of a certificate that ends soon: less than 30 days and less than a third of
// its time are left. "" where it does not, or where there is none (zeros).
std::string EndsSoon(const CertificateTimes& times, int64_t now_s);

}  // namespace strata

#endif  // STRATA_COMMON_RPC_TLS_FILES_H_
