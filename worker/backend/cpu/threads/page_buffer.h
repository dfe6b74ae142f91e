// Memory for weights, in whole pages that a file's may take the place of.
#ifndef STRATA_WORKER_BACKEND_CPU_THREADS_PAGE_BUFFER_H_
#define STRATA_WORKER_BACKEND_CPU_THREADS_PAGE_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "common/platform/platform.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"

namespace strata::cpu {

// Bytes, zeros until they are written, from the beginning of a large page on. No other memory lies
// on the large page that it ends on. Moves; never grows.
class PageBuffer {
 public:
  PageBuffer() = default;
  ~PageBuffer() { Free(); }
  PageBuffer(PageBuffer&& other) noexcept { *this = std::move(other); }
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // RESOURCE_EXHAUSTED, naming `what`, when the system gives no memory.
  absl::Status Allocate(size_t bytes, const char* what) {
    Free();
    data_ = AllocatePages(Reserved(bytes), kLargePageBytes);
    if (data_ == nullptr) {
      return NoMemory(bytes, what);
    }
    bytes_ = bytes;
    AdviseLargePages(data_, RoundUpToPages(bytes));
    return absl::OkStatus();
  }

  uint8_t* as() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  static size_t Reserved(size_t bytes) {
    return RoundUp(std::max<size_t>(1, bytes), kLargePageBytes);
  }
  void Free() {
    if (data_ != nullptr) {
      FreePages(data_, Reserved(bytes_));
      data_ = nullptr;
      bytes_ = 0;
    }
  }

  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_THREADS_PAGE_BUFFER_H_
