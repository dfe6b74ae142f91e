// A file in memory that has a path while its owner lives, and is replaced as a whole.
#ifndef STRATA_COMMON_PLATFORM_MEMORY_FILE_H_
#define STRATA_COMMON_PLATFORM_MEMORY_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata {

// For libraries of this process that read secrets from files only: what is in it is on no disk, and
// no other user can open it. One thread at a time may call Replace; others may read meanwhile.
class MemoryFile {
 public:
  // UNIMPLEMENTED where the system has no such files, or does not show them under a path.
  static absl::StatusOr<std::unique_ptr<MemoryFile>> Make(std::string_view text);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Always the same. Whoever opens it reads what was last put there, whole; whoever has opened it
  // before reads on what was there then. Each text has a time of change of its own, in seconds too.
  const std::string& path() const { return path_; }

  // What was there stays where it fails.
  absl::Status Replace(std::string_view text);

 private:
  MemoryFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  const int fd_;
  const std::string path_;
  int64_t changes_ = 0;
};

}  // namespace strata

#endif  // STRATA_COMMON_PLATFORM_MEMORY_FILE_H_
