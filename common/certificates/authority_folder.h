// The folder of a cluster's authority while the authority changes: the next one in `next`, the
// previous one in `previous`.
#ifndef STRATA_COMMON_CERTIFICATES_AUTHORITY_FOLDER_H_
#define STRATA_COMMON_CERTIFICATES_AUTHORITY_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/certificates/authority.h"

namespace strata {

struct AuthoritySet {
  CertifiedKey signer;
  std::string next{};      // A certificate (PEM): trusted, signs nothing yet. Empty: none.
  std::string previous{};  // A certificate (PEM): trusted, signs nothing any more. Empty: none.

  // What ca.pem of all is to be.
  std::string Trusted() const;
};

// What is in `path`. A switch that was interrupted is completed. NOT_FOUND (AUTHORITY_MISSING),
// INVALID_ARGUMENT (TLS_FILE_BAD, TLS_KEY_MISMATCH) as ReadAuthority; INTERNAL (FILE_FAILED).
absl::StatusOr<AuthoritySet> ReadAuthoritySet(const std::string& path);

// The steps of a change, each on disk when it has returned ok. FAILED_PRECONDITION (WRONG_PHASE)
// where another step is due.
absl::Status AddNextAuthority(const std::string& path, const CertifiedKey& next);
absl::Status SwitchAuthority(const std::string& path);
// Removes the previous one, with its key.
absl::Status DropPreviousAuthority(const std::string& path);

}  // namespace strata

#endif  // STRATA_COMMON_CERTIFICATES_AUTHORITY_FOLDER_H_
