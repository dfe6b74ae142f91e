// Memory for KV, scratch and single matrices: cache-line aligned, owned, and null when there is
// none.
#ifndef STRATA_WORKER_BACKEND_CPU_THREADS_ALIGNED_BUFFER_H_
#define STRATA_WORKER_BACKEND_CPU_THREADS_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/platform/platform.h"
#include "common/status.h"
#include "common/units.h"

namespace strata::cpu {

inline constexpr size_t kCacheLineBytes = 64;

inline constexpr size_t RoundUp(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

inline absl::Status NoMemory(size_t bytes, const char* what) {
  return Error(absl::StatusCode::kResourceExhausted, "MEMORY_EXHAUSTED",
               absl::StrCat("no memory for ", what))
      .Limit(absl::StrCat("needed=", FormatSize(bytes)))
      .Hint("load fewer layers or fewer KV tokens on this node");
}

struct AlignedDelete {
  size_t alignment = kCacheLineBytes;
  void operator()(uint8_t* memory) const {
    ::operator delete (memory, std::align_val_t{alignment});
  }
};

// Whether memory is zeroed, or written whole by whoever asked for it: its pages then lie where the
// threads that write them run.
enum class Fill { kZeros, kNone };

// Bytes. Moves; never grows.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  // RESOURCE_EXHAUSTED, naming `what`, when the system gives no memory.
  absl::Status Allocate(size_t bytes, const char* what, Fill fill = Fill::kZeros) {
    // Large buffers begin at a huge page, so that the system can back them with some.
    const size_t alignment = bytes >= kLargePageBytes ? kLargePageBytes : kCacheLineBytes;
    const size_t rounded = RoundUp(bytes == 0 ? 1 : bytes, kCacheLineBytes);
    void* memory = ::operator new (rounded, std::align_val_t{alignment}, std::nothrow);
    if (memory == nullptr) {
      return NoMemory(bytes, what);
    }
    if (alignment == kLargePageBytes) {
      AdviseLargePages(memory, rounded);
    }
    if (fill == Fill::kZeros) {
      std::memset(memory, 0, rounded);
    }
    data_ = Owned(static_cast<uint8_t*>(memory), AlignedDelete{alignment});
    bytes_ = rounded;
    return absl::OkStatus();
  }

  template <typename T = uint8_t>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  size_t bytes() const { return bytes_; }

 private:
  using Owned = std::unique_ptr<uint8_t, AlignedDelete>;
  Owned data_;
  size_t bytes_ = 0;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_THREADS_ALIGNED_BUFFER_H_
