#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/platform/platform.h"

namespace strata {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

uint64_t NumberOr(const std::string& text, uint64_t otherwise) {
  try {
    return text.empty() ? otherwise : std::stoull(text);
  } catch (...) {  // "max", or nothing that we know.
    return otherwise;
  }
}

// madvise for the pages that lie wholly in it.
void AdviseWholePages(const void* data, size_t bytes, int advice) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  if (begin < end) {
    (void)madvise(reinterpret_cast<void*>(begin), end - begin, advice);
  }
}

// Folders of this process's cgroup (version 2) and of those around it, innermost first.
std::vector<std::string> CgroupFolders() {
  std::ifstream in("/proc/self/cgroup");
  std::vector<std::string> folders;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("0::", 0) != 0) {
      continue;
    }
    for (std::string path = line.substr(3);; path = path.substr(0, path.rfind('/'))) {
      folders.push_back("/sys/fs/cgroup" + path);
      if (path.empty() || path == "/") {
        break;
      }
    }
  }
  return folders;
}

uint64_t CgroupAvailableBytes() {
  uint64_t available = kNoLimit;
  for (const std::string& folder : CgroupFolders()) {
    const uint64_t most = NumberOr(FirstLine(folder + "/memory.max"), kNoLimit);
    const uint64_t used = NumberOr(FirstLine(folder + "/memory.current"), 0);
    if (most != kNoLimit) {
      available = std::min(available, most > used ? most - used : 0);
    }
  }
  return available;
}

uint64_t MemAvailableBytes() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("MemAvailable:", 0) == 0) {
      return NumberOr(line.substr(13), 0) * 1024;
    }
  }
  return 0;
}

// Cores by the cgroup's quota, "QUOTA PERIOD" in microseconds; infinity without one.
double CgroupCores() {
  double cores = std::numeric_limits<double>::infinity();
  for (const std::string& folder : CgroupFolders()) {
    std::istringstream line(FirstLine(folder + "/cpu.max"));
    double quota = 0;
    double period = 0;
    if (line >> quota >> period && period > 0) {
      cores = std::min(cores, quota / period);
    }
  }
  return cores;
}

}  // namespace

uint64_t AvailableMemoryBytes() { return std::min(MemAvailableBytes(), CgroupAvailableBytes()); }

uint64_t ResidentMemoryBytes() {
  std::istringstream statm(FirstLine("/proc/self/statm"));
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void AdviseLargePages(void* data, size_t bytes) { AdviseWholePages(data, bytes, MADV_HUGEPAGE); }

void DropResidentPages(const void* data, size_t bytes) {
  AdviseWholePages(data, bytes, MADV_DONTNEED);
}

uint32_t UsableCores() {
  double cores = std::max(1u, std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    cores = CPU_COUNT(&set);
  }
  cores = std::min(cores, std::ceil(CgroupCores()));
  return std::max(1u, static_cast<uint32_t>(cores));
}

}  // namespace strata
