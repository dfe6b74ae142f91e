#include "common/checkpoint/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace strata {
namespace {

absl::Status SystemError(const std::string& path, const char* what, int error) {
  const std::string message = absl::StrCat("cannot ", what, " ", path, ": ", strerror(error));
  if (error == ENOENT || error == ENOTDIR) {
    return Error(absl::StatusCode::kNotFound, "FILE_NOT_FOUND", message);
  }
  if (error == EACCES || error == EPERM) {
    return Error(absl::StatusCode::kPermissionDenied, "FILE_PERMISSION", message);
  }
  return Error(absl::StatusCode::kUnavailable, "FILE_ERROR", message);
}

FileIdentity IdentityOf(const struct stat& info) {
#if defined(__APPLE__)
  const timespec modified = info.st_mtimespec;
#else
  const timespec modified = info.st_mtim;
#endif
  FileIdentity identity;
  identity.bytes = static_cast<uint64_t>(info.st_size);
  identity.modified_ns = int64_t{modified.tv_sec} * 1'000'000'000 + modified.tv_nsec;
  identity.device = static_cast<uint64_t>(info.st_dev);
  identity.inode = static_cast<uint64_t>(info.st_ino);
  return identity;
}

}  // namespace

absl::StatusOr<FileReader> FileReader::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return SystemError(path, "open", errno);
  }
  FileReader file(path, descriptor, {});
  struct stat info;
  if (fstat(descriptor, &info) != 0) {
    return SystemError(path, "look at", errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return Error(absl::StatusCode::kInvalidArgument, "NOT_A_FILE", path + " is not a regular file");
  }
  file.identity_ = IdentityOf(info);
  return file;
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      identity_(other.identity_) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(identity_, other.identity_);
  return *this;
}

FileReader::~FileReader() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

absl::StatusOr<FileIdentity> FileReader::CurrentIdentity() const {
  struct stat info;
  if (fstat(descriptor_, &info) != 0) {
    return SystemError(path_, "look at", errno);
  }
  return IdentityOf(info);
}

absl::Status FileReader::ReadAt(uint64_t offset, void* out, size_t bytes) const {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return SystemError(path_, "read", errno);
    }
    if (got == 0) {
      return Error(absl::StatusCode::kOutOfRange, "FILE_TOO_SHORT",
                   absl::StrCat(path_, " ends before byte ", offset + bytes));
    }
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  if (file.size() > max_bytes) {
    return Error(absl::StatusCode::kResourceExhausted, "FILE_TOO_LARGE",
                 absl::StrCat(path, " has ", file.size(), " bytes"))
        .Limit(absl::StrCat("bytes=", max_bytes));
  }
  std::string text(file.size(), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, text.data(), text.size()));
  return text;
}

}  // namespace strata
