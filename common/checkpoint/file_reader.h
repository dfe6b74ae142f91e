// Reading regular files with typed errors.
#ifndef STRATA_COMMON_CHECKPOINT_FILE_READER_H_
#define STRATA_COMMON_CHECKPOINT_FILE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata {

// What tells one state of a file from another, without reading it.
struct FileIdentity {
  uint64_t bytes = 0;
  int64_t modified_ns = 0;  // Since the epoch.
  uint64_t device = 0;
  uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// An open regular file. Movable; any thread may read.
class FileReader {
 public:
  // Follows symlinks. NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a regular file) or
  // UNAVAILABLE (anything else of the system's) name the path.
  static absl::StatusOr<FileReader> Open(const std::string& path);

  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;
  ~FileReader();

  // As it was when the file was opened.
  const FileIdentity& identity() const { return identity_; }
  uint64_t size() const { return identity_.bytes; }
  const std::string& path() const { return path_; }

  // As it is now.
  absl::StatusOr<FileIdentity> CurrentIdentity() const;
  // Fills `out` with exactly `bytes` from `offset`; OUT_OF_RANGE where the file ends before.
  absl::Status ReadAt(uint64_t offset, void* out, size_t bytes) const;
  int descriptor() const { return descriptor_; }

 private:
  FileReader(std::string path, int descriptor, FileIdentity identity)
      : path_(std::move(path)), descriptor_(descriptor), identity_(identity) {}

  std::string path_;
  int descriptor_ = -1;
  FileIdentity identity_;
};

// The whole of a small file. RESOURCE_EXHAUSTED where it is longer than `max_bytes`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_FILE_READER_H_
