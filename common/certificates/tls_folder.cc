#include "common/certificates/tls_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kFolderMode = 0700;
constexpr mode_t kFileMode = 0600;
constexpr mode_t kGroupFolderMode = 0750;
constexpr mode_t kGroupFileMode = 0640;
constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr char kSuffix[] = ".tls-";

absl::Status Refused(const char* what, const std::string& path, int error) {
  return Error(absl::StatusCode::kInternal, "FILE_FAILED",
               absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error)))
      .Hint("use a folder that this user may write to, on a disk with room");
}

// A new file; it reaches the disk before this returns.
absl::Status WriteFile(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode);
  if (file < 0) {
    return Refused("make", path, errno);
  }
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0) {
      error = errno == EINTR ? 0 : errno;
      continue;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  if (error == 0 && fsync(file) != 0) {
    error = errno;
  }
  if (close(file) != 0 && error == 0) {
    error = errno;
  }
  return error == 0 ? absl::OkStatus() : Refused("write", path, error);
}

absl::Status MakeFolders(const fs::path& path) {
  std::error_code error;
  if (!path.empty()) {
    fs::create_directories(path, error);
  }
  return error ? Refused("make", path.string(), error.value()) : absl::OkStatus();
}

// A folder beside `path` that was not there before.
absl::StatusOr<std::string> MakeFolderBeside(const std::string& path) {
  std::string name = absl::StrCat(path, kSuffix, "XXXXXX");
  if (mkdtemp(name.data()) == nullptr) {
    return Refused("make a folder beside", path, errno);
  }
  if (chmod(name.c_str(), kFolderMode) != 0) {
    return Refused("protect", name, errno);
  }
  return name;
}

// The folder that the link at `path` leads to, if WriteTlsFolder made both; "" where nothing is
// there.
absl::StatusOr<std::string> FolderBefore(const std::string& path) {
  std::error_code error;
  const fs::file_status at = fs::symlink_status(path, error);
  if (at.type() == fs::file_type::not_found) {
    return "";
  }
  const fs::path own = fs::path(path).filename();
  const std::string to =
      at.type() == fs::file_type::symlink ? fs::read_symlink(path, error).string() : "";
  if (!to.starts_with(absl::StrCat(own.string(), kSuffix)) || to.find('/') != std::string::npos) {
    return Error(absl::StatusCode::kAlreadyExists, "TLS_FOLDER_EXISTS",
                 absl::StrCat(path, " is there already, and was made by something else"))
        .Hint("name another folder, or move that one out of the way");
  }
  return (fs::path(path).parent_path() / to).string();
}

// Gives a folder and `names` in it to an owner, or lets a group read them. The folder comes last:
// until then nobody else can put anything in the place of its files.
absl::Status GiveAccess(const std::string& folder, const std::vector<std::string>& names,
                        const TlsFolderAccess& access) {
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    paths.push_back(folder + name);
  }
  paths.push_back(folder);
  for (const std::string& at : paths) {
    if (access.owner.has_value()) {
      if (lchown(at.c_str(), access.owner->user, access.owner->group) != 0) {
        return Refused("give an owner", at, errno);
      }
    } else if (access.group.has_value() &&
               (chown(at.c_str(), static_cast<uid_t>(-1), *access.group) != 0 ||
                chmod(at.c_str(), at == folder ? kGroupFolderMode : kGroupFileMode) != 0)) {
      return Refused("give a group", at, errno);
    }
  }
  return absl::OkStatus();
}

// A folder with ca.pem, cert.pem and key.pem alone.
bool IsCopy(const std::string& path) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() != fs::file_type::directory) {
    return false;
  }
  size_t known = 0;
  size_t all = 0;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    known += name == "ca.pem" || name == "cert.pem" || name == "key.pem" ? 1 : 0;
    ++all;
  }
  return !error && known == 3 && all == 3;
}

// Each gets the other's name, at once.
bool Exchange(const std::string& a, const std::string& b) {
#ifdef RENAME_EXCHANGE
  return renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
#else
  errno = ENOSYS;
  return false;
#endif
}

// `is_copy`: what is at `path` is then at `made`.link.
absl::Status FillAndLink(const std::string& made, const std::string& path, const TlsFolder& folder,
                         const TlsFolderAccess& access, bool is_copy) {
  RETURN_IF_ERROR(WriteFile(made + "/ca.pem", folder.ca));
  RETURN_IF_ERROR(WriteFile(made + "/cert.pem", folder.own.cert));
  RETURN_IF_ERROR(WriteFile(made + "/key.pem", folder.own.key));
  RETURN_IF_ERROR(GiveAccess(made, {"/ca.pem", "/cert.pem", "/key.pem"}, access));
  const std::string link = made + ".link";
  const std::string target = fs::path(made).filename().string();
  if (symlink(target.c_str(), link.c_str()) != 0) {
    return Refused("make", link, errno);
  }
  if (is_copy ? !Exchange(link, path) : rename(link.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(link.c_str());
    return Refused("rename a link to", path, error);
  }
  return absl::OkStatus();
}

// Removes what WriteTlsFolder made for `path` before those of `kept`.
void RemoveOlder(const std::string& path, const std::vector<std::string>& kept) {
  const std::string begin = fs::path(path).filename().string() + kSuffix;
  std::error_code ignored;
  std::vector<fs::path> older;
  const fs::path above = fs::path(path).parent_path();
  for (const auto& entry : fs::directory_iterator(above.empty() ? "." : above, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool keeps = std::any_of(kept.begin(), kept.end(), [&](const std::string& one) {
      return fs::path(one).filename() == name;
    });
    if (name.starts_with(begin) && !keeps) {
      older.push_back(entry.path());
    }
  }
  for (const fs::path& one : older) {
    fs::remove_all(one, ignored);
  }
}

// Without a '/' at its end, which would name what is in it.
std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  return path;
}

}  // namespace

absl::Status WriteTlsFolder(const std::string& path, const TlsFolder& folder,
                            const TlsFolderAccess& access) {
  const std::string at = WithoutSlash(path);
  RETURN_IF_ERROR(MakeFolders(fs::path(at).parent_path()));
  const bool is_copy = access.replace_copy && IsCopy(at);
  std::string before;
  if (!is_copy) {
    ASSIGN_OR_RETURN(before, FolderBefore(at));
  }
  ASSIGN_OR_RETURN(const std::string made, MakeFolderBeside(at));
  std::error_code ignored;
  if (absl::Status status = FillAndLink(made, at, folder, access, is_copy); !status.ok()) {
    fs::remove_all(made, ignored);
    return status;
  }
  RemoveOlder(at, {made, is_copy ? made + ".link" : before});
  return absl::OkStatus();
}

absl::Status WriteAuthority(const std::string& path, const CertifiedKey& authority,
                            const TlsFolderAccess& access) {
  const std::string at = WithoutSlash(path);
  RETURN_IF_ERROR(MakeFolders(at));
  if (chmod(at.c_str(), kFolderMode) != 0) {
    return Refused("protect", at, errno);
  }
  for (const char* name : {"/ca.pem", "/ca-key.pem"}) {
    if (fs::exists(fs::symlink_status(absl::StrCat(at, name)))) {
      return Error(absl::StatusCode::kAlreadyExists, "AUTHORITY_EXISTS",
                   absl::StrCat("there is an authority in ", at, " already (", name + 1, ")"))
          .Hint("use it; or name another folder, and make all certificates anew");
    }
  }
  // Its key first: a certificate without it would look like an authority.
  RETURN_IF_ERROR(WriteFile(at + "/ca-key.pem", authority.key));
  RETURN_IF_ERROR(WriteFile(at + "/ca.pem", authority.cert));
  return GiveAccess(at, {"/ca.pem", "/ca-key.pem"}, access);
}

absl::StatusOr<CertifiedKey> ReadAuthority(const std::string& path) {
  const std::string at = WithoutSlash(path);
  CertifiedKey authority;
  for (const auto& [name, text] : {std::pair<const char*, std::string*>("/ca.pem", &authority.cert),
                                   {"/ca-key.pem", &authority.key}}) {
    std::ifstream in(absl::StrCat(at, name), std::ios::binary);
    text->resize(kMaxFileBytes + 1);
    in.read(text->data(), static_cast<std::streamsize>(text->size()));
    text->resize(static_cast<size_t>(in.gcount()));
    if (text->empty()) {
      return Error(absl::StatusCode::kNotFound, "AUTHORITY_MISSING",
                   absl::StrCat("cannot read the authority's ", name + 1, " in ", at))
          .Hint("`strata cluster init` makes an authority; its user alone can read it");
    }
    if (text->size() > kMaxFileBytes) {
      return Error(absl::StatusCode::kInvalidArgument, "TLS_FILE_BAD",
                   absl::StrCat(at, name, " is larger than a PEM file may be"))
          .Limit(absl::StrCat("bytes=", kMaxFileBytes));
    }
  }
  return authority;
}

}  // namespace strata
