#include "common/platform/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/status.h"

namespace strata {
namespace {

#ifdef __linux__

absl::Status NoMemoryFile(const std::string& what, int error) {
  return Error(absl::StatusCode::kUnimplemented, "NO_MEMORY_FILE",
               "cannot " + what + ": " + std::strerror(error));
}

// A descriptor of such a file, last changed at `changed_s`.
absl::StatusOr<int> Filled(std::string_view text, int64_t changed_s) {
  const int fd = memfd_create("strata", MFD_CLOEXEC);
  if (fd < 0) {
    return NoMemoryFile("make a file in memory", errno);
  }
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  const timespec at = {.tv_sec = static_cast<time_t>(changed_s), .tv_nsec = 0};
  const timespec times[2] = {at, at};
  if (error == 0 && (fchmod(fd, S_IRUSR | S_IWUSR) != 0 || futimens(fd, times) != 0)) {
    error = errno;
  }
  if (error != 0) {
    close(fd);
    return NoMemoryFile("write a file in memory", error);
  }
  return fd;
}

// From when on times of change count.
constexpr int64_t kFirstChangeS = 1;

#endif

}  // namespace

#ifdef __linux__

absl::StatusOr<std::unique_ptr<MemoryFile>> MemoryFile::Make(std::string_view text) {
  ASSIGN_OR_RETURN(const int fd, Filled(text, kFirstChangeS));
  auto file =
      std::unique_ptr<MemoryFile>(new MemoryFile(fd, "/proc/self/fd/" + std::to_string(fd)));
  if (access(file->path_.c_str(), R_OK) != 0) {
    return NoMemoryFile("find a file in memory at " + file->path_, errno);
  }
  return file;
}

MemoryFile::~MemoryFile() { close(fd_); }

absl::Status MemoryFile::Replace(std::string_view text) {
  ASSIGN_OR_RETURN(const int fd, Filled(text, kFirstChangeS + ++changes_));
  // The path leads to whatever the descriptor is of, from one moment to the next.
  const int error = dup3(fd, fd_, O_CLOEXEC) < 0 ? errno : 0;
  close(fd);
  return error == 0 ? absl::OkStatus() : NoMemoryFile("replace a file in memory", error);
}

#else

absl::StatusOr<std::unique_ptr<MemoryFile>> MemoryFile::Make(std::string_view /*text*/) {
  return Error(absl::StatusCode::kUnimplemented, "NO_MEMORY_FILE",
               "this system has no files in memory");
}

MemoryFile::~MemoryFile() { close(fd_); }

absl::Status MemoryFile::Replace(std::string_view /*text*/) { return absl::UnimplementedError(""); }

#endif

}  // namespace strata
