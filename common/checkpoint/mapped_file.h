// A file mapped for reading.
#ifndef STRATA_COMMON_CHECKPOINT_MAPPED_FILE_H_
#define STRATA_COMMON_CHECKPOINT_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace strata {

// The whole of a regular file, mapped read-only and private. Movable. Any thread may read. The
// file must not shrink while it is mapped: reading past its new end is a SIGBUS, so map only files
// that nobody else writes.
class MappedFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT (not a regular file) name the path.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // nullptr when the file is empty. Page aligned.
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

  // Tells the system that [offset, offset + bytes) is not needed soon, so that its memory can be
  // used for something else. The contents stay readable.
  void Evict(size_t offset, size_t bytes) const;

 private:
  MappedFile(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_MAPPED_FILE_H_
