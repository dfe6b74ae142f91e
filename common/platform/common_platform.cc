// The part that is the same everywhere.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "common/platform/platform.h"
#include "common/status.h"

namespace strata {

std::string PlatformName() {
  utsname name{};
  if (uname(&name) != 0) {
    return "unknown";
  }
  std::string system = name.sysname;
  std::transform(system.begin(), system.end(), system.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return system + "-" + name.machine;
}

uint64_t RaiseOpenFiles() {
  constexpr rlim_t kMost = 65'536;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return 0;
  }
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur < wanted) {
    const rlimit raised{wanted, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return limit.rlim_cur;
}

void GiveWay(int niceness) {
  // One that was started with more keeps that; lowering it is root's alone.
  if (getpriority(PRIO_PROCESS, 0) < niceness) {
    setpriority(PRIO_PROCESS, 0, niceness);
  }
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) {
    return "";
  }
  return name;
}

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t RoundUpToPages(size_t bytes) {
  return (bytes + PageBytes() - 1) / PageBytes() * PageBytes();
}

uint8_t* AllocatePages(size_t bytes, size_t alignment) {
  const size_t wanted = RoundUpToPages(bytes);
  void* const all =
      mmap(nullptr, wanted + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) {
    return nullptr;
  }
  auto* const begin = static_cast<uint8_t*>(all);
  const size_t before = (alignment - reinterpret_cast<uintptr_t>(begin) % alignment) % alignment;
  if (before > 0) {
    munmap(begin, before);
  }
  munmap(begin + before + wanted, alignment - before);
  return begin + before;
}

void FreePages(uint8_t* pages, size_t bytes) { munmap(pages, RoundUpToPages(bytes)); }

absl::StatusOr<std::unique_ptr<DirectoryLock>> DirectoryLock::Acquire(
    const std::string& directory) {
  std::error_code error;
  const bool created = std::filesystem::create_directories(directory, error);
  if (error) {
    return Error(absl::StatusCode::kFailedPrecondition, "DATA_DIR",
                 "cannot create the data directory " + directory + ": " + error.message())
        .Hint("choose another with --data-dir");
  }
  if (created) {
    std::filesystem::permissions(directory, std::filesystem::perms::owner_all, error);
  }
  const std::string path = directory + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return Error(absl::StatusCode::kFailedPrecondition, "DATA_DIR",
                 "cannot open " + path + ": " + std::strerror(errno))
        .Hint("choose another directory with --data-dir");
  }
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char holder[64] = {};
    const ssize_t n = pread(fd, holder, sizeof(holder) - 1, 0);
    close(fd);
    const std::string pid =
        n > 0 ? std::string(holder, strcspn(holder, "\n")) : std::string("another process");
    return Error(absl::StatusCode::kFailedPrecondition, "DATA_DIR_LOCKED",
                 "the data directory " + directory + " is in use by process " + pid)
        .Hint("stop that process, or choose another directory with --data-dir");
  }
  // For whoever finds it locked. Written over what is there, which needs no room on the disk; a
  // disk that takes nothing keeps nobody from holding the lock.
  const std::string pid = std::to_string(getpid()) + "\n";
  if (pwrite(fd, pid.data(), pid.size(), 0) < 0 ||
      ftruncate(fd, static_cast<off_t>(pid.size())) != 0) {
    (void)ftruncate(fd, 0);
  }
  return std::unique_ptr<DirectoryLock>(new DirectoryLock(fd));
}

DirectoryLock::~DirectoryLock() { close(fd_); }

std::string DefaultDataDir(const std::string& name, const char* (*get_env)(const char*)) {
  if (const char* state = get_env("STATE_DIRECTORY"); state != nullptr && *state != '\0') {
    return state;
  }
  if (const char* xdg = get_env("XDG_DATA_HOME"); xdg != nullptr && *xdg != '\0') {
    return std::string(xdg) + "/strata/" + name;
  }
  if (const char* home = get_env("HOME"); home != nullptr && *home != '\0') {
    return std::string(home) + "/.local/share/strata/" + name;
  }
  return "/var/lib/strata/" + name;
}

}  // namespace strata
