#include "common/certificates/authority_folder.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/certificates/tls_folder.h"
#include "common/status.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr char kNext[] = "/next";
constexpr char kPrevious[] = "/previous";

constexpr char kHint[] =
    "let the user that the coordinator runs as write to the folder of its --authority, on a disk "
    "with room (docs/INSTALL.md says how to move one from /etc/strata)";

absl::Status WrongPhase(const std::string& what, const std::string& hint) {
  return Error(absl::StatusCode::kFailedPrecondition, "WRONG_PHASE", what).Hint(hint);
}

absl::Status FileFailed(const std::string& what, const std::error_code& error) {
  return Error(absl::StatusCode::kInternal, "FILE_FAILED",
               absl::StrCat("cannot ", what, ": ", error.message()))
      .Hint(kHint);
}

// The next or the previous one, which the coordinator itself writes.
absl::Status Write(const std::string& path, const CertifiedKey& authority) {
  const absl::Status written = WriteAuthority(path, authority);
  if (written.ok() || ReasonOf(written) != "FILE_FAILED") {
    return written;
  }
  return Error(written.code(), "FILE_FAILED", DetailOf(written).message()).Hint(kHint);
}

// One that was not written to its end is none: its certificate comes last.
bool IsThere(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path + "/ca.pem", ignored);
}

absl::Status Remove(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? FileFailed("remove " + path, error) : absl::OkStatus();
}

absl::Status Rename(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  return error ? FileFailed("rename " + from, error) : absl::OkStatus();
}

// From when on there are both `next` and `previous` until they are one again.
absl::Status CompleteSwitch(const std::string& path) {
  if (IsThere(path + kNext)) {
    std::error_code ignored;
    if (fs::exists(path + kNext + "/ca-key.pem", ignored)) {
      RETURN_IF_ERROR(Rename(path + kNext + "/ca-key.pem", path + "/ca-key.pem"));
    }
    RETURN_IF_ERROR(Rename(path + kNext + "/ca.pem", path + "/ca.pem"));
  }
  return Remove(path + kNext);
}

}  // namespace

std::string AuthoritySet::Trusted() const {
  std::string all = signer.cert;
  for (const std::string* other : {&next, &previous}) {
    absl::StrAppend(&all, all.empty() || all.back() == '\n' || other->empty() ? "" : "\n", *other);
  }
  return all;
}

absl::StatusOr<AuthoritySet> ReadAuthoritySet(const std::string& path) {
  if (IsThere(path + kPrevious) && fs::exists(path + kNext)) {
    RETURN_IF_ERROR(CompleteSwitch(path));
  }
  AuthoritySet set;
  ASSIGN_OR_RETURN(set.signer, ReadAuthority(path));
  for (const auto& [name, cert] : {std::pair(kNext, &set.next), {kPrevious, &set.previous}}) {
    if (IsThere(path + name)) {
      ASSIGN_OR_RETURN(CertifiedKey other, ReadAuthority(path + name));
      *cert = std::move(other.cert);
    }
  }
  return set;
}

absl::Status AddNextAuthority(const std::string& path, const CertifiedKey& next) {
  ASSIGN_OR_RETURN(const AuthoritySet now, ReadAuthoritySet(path));
  if (!now.next.empty() || !now.previous.empty()) {
    return WrongPhase("the authority is being changed already",
                      "see `strata cluster authority status` for the next step");
  }
  RETURN_IF_ERROR(Remove(path + kNext));
  return Write(path + kNext, next);
}

absl::Status SwitchAuthority(const std::string& path) {
  ASSIGN_OR_RETURN(const AuthoritySet now, ReadAuthoritySet(path));
  if (now.next.empty()) {
    return WrongPhase("there is no next authority to switch to",
                      "`strata cluster authority rotate` makes one");
  }
  RETURN_IF_ERROR(Remove(path + kPrevious));
  RETURN_IF_ERROR(Write(path + kPrevious, now.signer));
  return CompleteSwitch(path);
}

absl::Status DropPreviousAuthority(const std::string& path) {
  ASSIGN_OR_RETURN(const AuthoritySet now, ReadAuthoritySet(path));
  if (now.previous.empty()) {
    return WrongPhase("there is no previous authority to drop",
                      "see `strata cluster authority status` for the next step");
  }
  // Without its certificate it is none.
  std::error_code error;
  fs::remove(path + kPrevious + "/ca.pem", error);
  return error ? FileFailed("remove " + path + kPrevious, error) : Remove(path + kPrevious);
}

}  // namespace strata
