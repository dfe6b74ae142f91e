// The folders that hold certificates: those of --tls-dir, and the authority's.
#ifndef STRATA_COMMON_CERTIFICATES_TLS_FOLDER_H_
#define STRATA_COMMON_CERTIFICATES_TLS_FOLDER_H_

#include <cstdint>
#include <optional>
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

// Whose a folder is.
struct TlsFolderOwner {
  uint32_t user = 0;
  uint32_t group = 0;
};

// Who may read a folder beside its owner, and who that is.
struct TlsFolderAccess {
  std::optional<uint32_t> group{};  // A group's id. The process must be root, or a member.
  // Instead of the process's own user, which must be root then. Nobody else reads it, whatever
  // `group` is.
  std::optional<TlsFolderOwner> owner{};
  // A folder with nothing but the three files, as whoever copies them makes, is replaced too, where
  // the system can exchange two names at once.
  bool replace_copy = false;
};

// Puts a folder at `path` that its user alone can read, unless `access` says otherwise, with all
// files in it or none: it is written beside `path` under a name of its own, and `path` is a link to
// it, which is renamed to where it belongs. The folder before, if this made it, stays beside it
// until the next time, for whoever was about to read it; those before that are removed.
// ALREADY_EXISTS (TLS_FOLDER_EXISTS) where `path` is something else; INTERNAL (FILE_FAILED) where
// the file system refuses. Folders above `path` are made.
absl::Status WriteTlsFolder(const std::string& path, const TlsFolder& folder,
                            const TlsFolderAccess& access = {});

// The authority in `path`: ca.pem and ca-key.pem, which its user alone can read, unless `access`
// says otherwise. ALREADY_EXISTS (AUTHORITY_EXISTS) where there is any: what it signed would be
// worthless.
absl::Status WriteAuthority(const std::string& path, const CertifiedKey& authority,
                            const TlsFolderAccess& access = {});
// NOT_FOUND (AUTHORITY_MISSING) where there is none, INVALID_ARGUMENT (TLS_FILE_BAD) where a file
// is too large.
absl::StatusOr<CertifiedKey> ReadAuthority(const std::string& path);

}  // namespace strata

#endif  // STRATA_COMMON_CERTIFICATES_TLS_FOLDER_H_
