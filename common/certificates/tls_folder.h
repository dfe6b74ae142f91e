// The folders that hold certificates: those of --tls-dir, and the authority's.
#ifndef STRATA_COMMON_CERTIFICATES_TLS_FOLDER_H_
#define STRATA_COMMON_CERTIFICATES_TLS_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/certificates/authority.h"

namespace strata {

// What a folder of --tls-dir has.
struct TlsFolder {
  std::string ca;    // ca.pem
  CertifiedKey own;  // cert.pem, key.pem
};

// Puts a folder at `path` that its user alone can read, with all files in it or none: it is written
// beside `path` under a name of its own, and `path` is a link to it, which is renamed to where it
// belongs. What `path` led to before, if this made it, is removed after that; so whoever reads
// `path` finds a whole folder at any time. ALREADY_EXISTS (TLS_FOLDER_EXISTS) where `path` is
// something else; INTERNAL (FILE_FAILED) where the file system refuses. Folders above `path` are
// made.
absl::Status WriteTlsFolder(const std::string& path, const TlsFolder& folder);

// The authority in `path`: ca.pem and ca-key.pem, which its user alone can read. ALREADY_EXISTS
// (AUTHORITY_EXISTS) where there is any: what it signed would be worthless.
absl::Status WriteAuthority(const std::string& path, const CertifiedKey& authority);
// NOT_FOUND (AUTHORITY_MISSING) where there is none, INVALID_ARGUMENT (TLS_FILE_BAD) where a file
// is too large.
absl::StatusOr<CertifiedKey> ReadAuthority(const std::string& path);

}  // namespace strata

#endif  // STRATA_COMMON_CERTIFICATES_TLS_FOLDER_H_
