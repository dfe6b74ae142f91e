#include "common/checkpoint/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/file_reader.h"
#include "common/status.h"

namespace strata {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  if (file.size() == 0) {
    return MappedFile(nullptr, 0);
  }
  void* data = mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (data == MAP_FAILED) {
    return Error(absl::StatusCode::kUnavailable, "FILE_ERROR",
                 absl::StrCat("cannot map ", path, ": ", strerror(errno)));
  }
  return MappedFile(static_cast<const uint8_t*>(data), file.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    munmap(const_cast<uint8_t*>(data_), size_);
  }
}

void MappedFile::Evict(size_t offset, size_t bytes) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = (offset + page - 1) / page * page;
  const size_t last = (offset + bytes) / page * page;
  if (data_ != nullptr && first < last && last <= size_) {
    madvise(const_cast<uint8_t*>(data_) + first, last - first, MADV_DONTNEED);
  }
}

}  // namespace strata
