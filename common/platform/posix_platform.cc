#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "common/platform/heap.h"
#include "common/platform/platform.h"
#include "common/status.h"

namespace strata {

uint64_t AvailableMemoryBytes() {
  // POSIX has no "available"; half of what is there is what a desktop can usually spare.
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<uint64_t>(pages * page_bytes) / 2 : 0;
}

uint64_t QuotaMemoryBytes(const std::string&) { return std::numeric_limits<uint64_t>::max(); }

uint64_t ResidentMemoryBytes() {
  // The peak: POSIX has no present size.
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) {
    return 0;
  }
#if defined(__APPLE__)
  return static_cast<uint64_t>(usage.ru_maxrss);
#else
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
#endif
}

// Nor does it say what is allocated.
uint64_t HeapBytes() { return 0; }

// POSIX has niceness of processes only, and threads without names.
void ThreadGivesWay(int) {}

std::string OwnProgram(const std::string& called_as) { return called_as; }

void NameThread(const std::string&) {}

// POSIX says nothing of where cores and memory are.
Topology UsableTopology() { return {}; }

Topology ReadTopology(const std::string&, const std::vector<uint32_t>&) { return {}; }

bool PinThread(pthread_t, uint32_t) { return false; }

absl::Status PreferMemoryNode(void*, size_t, uint32_t) {
  return Error(absl::StatusCode::kUnimplemented, "MEMORY_NODE",
               "this system does not say which memory node is used");
}

std::string LargePageMode() { return ""; }

uint64_t LargePageBytes() { return 0; }

void AdviseLargePages(void*, size_t) {}

void DropResidentPages(const void*, size_t) {}

// POSIX cannot put other pages under an address that is being read.
namespace {
absl::Status NoMaps() {
  return Error(absl::StatusCode::kUnimplemented, "PAGES",
               "this system does not move pages of files to large ones");
}
}  // namespace

absl::Status MapFile(int, uint8_t*, size_t) { return NoMaps(); }

absl::Status PopulatePages(const uint8_t*, size_t) { return NoMaps(); }

absl::Status UnmapFile(uint8_t*, size_t) { return NoMaps(); }

absl::Status MovePages(uint8_t*, size_t) { return NoMaps(); }

double QuotaCores(const std::string&) { return std::numeric_limits<double>::infinity(); }

uint32_t UsableCores(const std::string&) {
  return static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace strata
