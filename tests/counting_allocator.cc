// Replaces operator new and delete of the binary that it is linked into.
#include "tests/counting_allocator.h"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

// The sanitizers' own allocators cannot be replaced in part.
#ifdef STRATA_SANITIZED
#define STRATA_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#define STRATA_COUNTS_ALLOCATIONS \
  (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define STRATA_COUNTS_ALLOCATIONS 1
#endif

namespace {

std::atomic<uint64_t> allocations{0};
std::atomic<uint64_t> allocated_bytes{0};
std::atomic<uint64_t> live{0};
std::atomic<uint64_t> peak{0};

}  // namespace

#if STRATA_COUNTS_ALLOCATIONS
namespace {

void* CountedAllocate(size_t bytes, size_t alignment) {
  ++allocations;
  allocated_bytes += bytes;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment,
                     bytes == 0 ? 1 : bytes) != 0) {
    throw std::bad_alloc();
  }
  const uint64_t now = live += malloc_usable_size(memory);
  uint64_t most = peak;
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
  return memory;
}

void CountedFree(void* memory) {
  if (memory != nullptr) live -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

// Not inlined: the compiler would take these for mismatched pairs.
#define STRATA_NOINLINE __attribute__((noinline))
STRATA_NOINLINE void* operator new(size_t bytes) {
  return CountedAllocate(bytes, alignof(std::max_align_t));
}
STRATA_NOINLINE void* operator new(size_t bytes, std::align_val_t alignment) {
  return CountedAllocate(bytes, static_cast<size_t>(alignment));
}
STRATA_NOINLINE void operator delete(void* memory) noexcept { CountedFree(memory); }
STRATA_NOINLINE void operator delete(void* memory, size_t) noexcept { CountedFree(memory); }
STRATA_NOINLINE void operator delete(void* memory, std::align_val_t) noexcept {
  CountedFree(memory);
}
STRATA_NOINLINE void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  CountedFree(memory);
}
#endif

namespace strata::testing {

bool CountsAllocations() { return STRATA_COUNTS_ALLOCATIONS != 0; }
uint64_t Allocations() { return allocations; }
uint64_t AllocatedBytes() { return allocated_bytes; }
uint64_t LiveBytes() { return live; }
uint64_t PeakBytes() { return peak; }
void ResetPeak() { peak = live.load(); }

}  // namespace strata::testing
