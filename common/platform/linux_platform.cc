#include <linux/mempolicy.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/platform/heap.h"
#include "common/platform/platform.h"
#include "common/status.h"

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

// The pages that lie wholly in it: where they begin, and their bytes.
std::pair<void*, size_t> WholePages(const void* data, size_t bytes) {
  const uintptr_t page = PageBytes();
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  return {reinterpret_cast<void*>(begin), begin < end ? end - begin : 0};
}

void AdviseWholePages(const void* data, size_t bytes, int advice) {
  const auto [begin, length] = WholePages(data, bytes);
  if (length > 0) {
    (void)madvise(begin, length, advice);
  }
}

// With errno's text.
absl::Status PagesError(absl::StatusCode code, const std::string& what) {
  return Error(code, "PAGES", what + ": " + std::strerror(errno));
}

// Where the system counts all memory that it has promised (vm.overcommit_memory 2), it may have
// none when a map is to become memory again.
bool MayRefuseMemory() { return FirstLine("/proc/sys/vm/overcommit_memory") == "2"; }

// "0-3,8": 0, 1, 2, 3, 8.
std::vector<uint32_t> ParseList(const std::string& text) {
  std::vector<uint32_t> numbers;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    const uint64_t first = NumberOr(part, kNoLimit);
    const size_t dash = part.find('-');
    const uint64_t last = dash == std::string::npos ? first : NumberOr(part.substr(dash + 1), 0);
    for (uint64_t n = first; n <= last && n < CPU_SETSIZE; ++n) {
      numbers.push_back(static_cast<uint32_t>(n));
    }
  }
  return numbers;
}

std::map<uint32_t, uint32_t> NodesByCore(const std::string& root) {
  std::map<uint32_t, uint32_t> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/node", error)) {
    const std::string name = entry.path().filename().string();
    const uint64_t node =
        name.rfind("node", 0) == 0 ? NumberOr(name.substr(4), kNoLimit) : kNoLimit;
    if (node != kNoLimit) {
      for (const uint32_t core : ParseList(FirstLine(entry.path().string() + "/cpulist"))) {
        nodes[core] = static_cast<uint32_t>(node);
      }
    }
  }
  return nodes;
}

// Adds `mount` + `path` and the folders around it, up to the mount: in a container whose mount is
// its own cgroup the path may be the host's, and only the mount itself is there.
void AddFolders(const std::string& mount, std::string path, std::vector<std::string>* folders) {
  while (!path.empty() && path != "/") {
    folders->push_back(mount + path);
    const size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
  folders->push_back(mount);
}

// Folders of this process's cgroups and of those around them, innermost first: of version 2, or of
// the hierarchy of version 1 that has `controller`. Lines are "ID:CONTROLLERS:PATH".
std::vector<std::string> CgroupFolders(const std::string& root, const std::string& controller) {
  std::ifstream in(root + "/proc/self/cgroup");
  const std::string mounts = root + "/sys/fs/cgroup";
  std::vector<std::string> folders;
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      if (controller.empty()) {
        AddFolders(mounts, path, &folders);
      }
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      // Mounted as "cpu,cpuacct", with a link from "cpu", or as "cpu" alone.
      AddFolders(mounts + "/" + controllers, path, &folders);
      AddFolders(mounts + "/" + controller, path, &folders);
    }
  }
  return folders;
}

// Of a file with a name and a number in each line: the number of this name, or 0.
uint64_t NumberOf(const std::string& name, const std::string& path) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name + " ", 0) == 0) {
      return NumberOr(line.substr(name.size()), 0);
    }
  }
  return 0;
}

// "QUOTA PERIOD" in microseconds, as cores. Infinity for "max", -1 (version 1's) and what is no
// quota.
double CoresOf(const std::string& text) {
  std::istringstream in(text);
  double quota = 0;
  double period = 0;
  const bool limits = in >> quota >> period && quota > 0 && period > 0;
  return limits ? quota / period : std::numeric_limits<double>::infinity();
}

// What the files of a cgroup's memory are called.
struct MemoryFiles {
  const char* most;
  const char* high;  // Above this the system makes whoever allocates wait, and takes back.
  const char* current;
  // Lines of memory.stat: pages of files, those of cgroups below included.
  const char* inactive;
  const char* active;
};
constexpr MemoryFiles kVersion2{"/memory.max", "/memory.high", "/memory.current", "inactive_file",
                                "active_file"};
constexpr MemoryFiles kVersion1{"/memory.limit_in_bytes", "", "/memory.usage_in_bytes",
                                "total_inactive_file", "total_active_file"};
// Version 1 writes the largest number of whole pages where there is no limit.
constexpr uint64_t kLimitsNothing = uint64_t{1} << 60;

}  // namespace

uint64_t AvailableMemoryBytes() {
  return std::min(NumberOf("MemAvailable:", "/proc/meminfo") * 1024, QuotaMemoryBytes(""));
}

uint64_t QuotaMemoryBytes(const std::string& root) {
  uint64_t available = kNoLimit;
  const auto look = [&](const std::string& folder, const MemoryFiles& files) {
    const uint64_t most = std::min(
        NumberOr(FirstLine(folder + files.most), kNoLimit),
        *files.high == '\0' ? kNoLimit : NumberOr(FirstLine(folder + files.high), kNoLimit));
    if (most >= kLimitsNothing) {
      return;
    }
    const uint64_t current = NumberOr(FirstLine(folder + files.current), 0);
    // Pages of files, which the system takes back when it needs them.
    const std::string stat = folder + "/memory.stat";
    const uint64_t cached = NumberOf(files.inactive, stat) + NumberOf(files.active, stat);
    const uint64_t used = current - std::min(current, cached);
    available = std::min(available, most > used ? most - used : 0);
  };
  for (const std::string& folder : CgroupFolders(root, "")) {
    look(folder, kVersion2);
  }
  for (const std::string& folder : CgroupFolders(root, "memory")) {
    look(folder, kVersion1);
  }
  return available;
}

uint64_t ResidentMemoryBytes() {
  std::istringstream statm(FirstLine("/proc/self/statm"));
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t HeapBytes() {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 info = mallinfo2();  // Of all arenas.
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

void ThreadGivesWay(int steps) {
  // 0 is the calling thread here, whatever POSIX says. The system stops at the highest by itself.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + steps);
}

// A link that holds though the file was replaced meanwhile: the system resolves it in the process
// that is to become it, which still is this program.
std::string OwnProgram(const std::string& /*called_as*/) { return "/proc/self/exe"; }

void NameThread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

Topology UsableTopology() {
  std::vector<uint32_t> numbers;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (uint32_t n = 0; n < CPU_SETSIZE; ++n) {
      if (CPU_ISSET(n, &set)) {
        numbers.push_back(n);
      }
    }
  }
  return ReadTopology("/sys/devices/system", numbers);
}

Topology ReadTopology(const std::string& root, const std::vector<uint32_t>& numbers) {
  Topology topology;
  topology.online = static_cast<uint32_t>(ParseList(FirstLine(root + "/cpu/online")).size());
  const std::map<uint32_t, uint32_t> nodes = NodesByCore(root);
  for (const uint32_t number : numbers) {
    Core core{.number = number, .physical = number};
    const std::vector<uint32_t> siblings = ParseList(
        FirstLine(root + "/cpu/cpu" + std::to_string(number) + "/topology/thread_siblings_list"));
    if (!siblings.empty()) {
      core.physical = siblings.front();
    }
    if (const auto node = nodes.find(number); node != nodes.end()) {
      core.node = node->second;
    }
    topology.cores.push_back(core);
  }
  return topology;
}

bool PinThread(pthread_t thread, uint32_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core >= CPU_SETSIZE) {
    return false;
  }
  CPU_SET(core, &set);
  return pthread_setaffinity_np(thread, sizeof(set), &set) == 0;
}

absl::Status PreferMemoryNode(void* data, size_t bytes, uint32_t node) {
  constexpr uint32_t kMostNodes = 1024;
  using Word = unsigned long;  // The system call's. NOLINT(google-runtime-int)
  constexpr uint32_t kBits = sizeof(Word) * CHAR_BIT;
  Word nodes[kMostNodes / kBits] = {};
  const auto [begin, length] = WholePages(data, bytes);
  if (length == 0) {
    return absl::OkStatus();
  }
  if (node < kMostNodes) {
    nodes[node / kBits] |= Word{1} << node % kBits;
  }
  // Without libnuma: this is all of it that is needed. The kernel looks at one bit less than told.
  if (node >= kMostNodes ||
      syscall(SYS_mbind, begin, length, MPOL_PREFERRED, nodes, kMostNodes + 1, MPOL_MF_MOVE) != 0) {
    return Error(absl::StatusCode::kUnavailable, "MEMORY_NODE",
                 "memory cannot be put on node " + std::to_string(node) + ": " +
                     std::strerror(node < kMostNodes ? errno : EINVAL))
        .Hint("a container needs the capability SYS_NICE for it");
  }
  return absl::OkStatus();
}

std::string LargePageMode() {
  const std::string modes = FirstLine("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t begin = modes.find('[');
  const size_t end = modes.find(']');
  return begin < end && end != std::string::npos ? modes.substr(begin + 1, end - begin - 1) : "";
}

uint64_t LargePageBytes() { return NumberOf("AnonHugePages:", "/proc/self/smaps_rollup") * 1024; }

void AdviseLargePages(void* data, size_t bytes) { AdviseWholePages(data, bytes, MADV_HUGEPAGE); }

void DropResidentPages(const void* data, size_t bytes) {
  AdviseWholePages(data, bytes, MADV_DONTNEED);
}

absl::Status MapFile(int fd, uint8_t* pages, size_t bytes) {
  if (MayRefuseMemory()) {
    return Error(absl::StatusCode::kUnimplemented, "PAGES",
                 "a map could not be moved to memory that the system may refuse");
  }
  // Linux before 5.14 does not know how to populate.
  if (mmap(pages, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED &&
      madvise(pages, PageBytes(), MADV_POPULATE_READ) == 0) {
    return absl::OkStatus();
  }
  const absl::Status status =
      PagesError(absl::StatusCode::kUnimplemented, "a file cannot be mapped");
  RETURN_IF_ERROR(UnmapFile(pages, bytes));
  return status;
}

absl::Status PopulatePages(const uint8_t* pages, size_t bytes) {
  auto* const begin = const_cast<uint8_t*>(pages);
  // All at once: faults ask a disk for little ahead.
  (void)madvise(begin, RoundUpToPages(bytes), MADV_WILLNEED);
  if (madvise(begin, RoundUpToPages(bytes), MADV_POPULATE_READ) == 0) {
    return absl::OkStatus();
  }
  return PagesError(
      errno == ENOMEM ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
      "a file's pages cannot be read");
}

absl::Status UnmapFile(uint8_t* pages, size_t bytes) {
  if (mmap(pages, RoundUpToPages(bytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return PagesError(absl::StatusCode::kResourceExhausted,
                      "memory cannot take the place of a map");
  }
  // To the end of its last page, or a large page could not reach over that.
  AdviseLargePages(pages, RoundUpToPages(bytes));
  return absl::OkStatus();
}

absl::Status MovePages(uint8_t* pages, size_t bytes) {
  const char* const what = "there are no large pages to move to";
  uint8_t* const large = AllocatePages(bytes, kLargePageBytes);
  if (large == nullptr) {
    return PagesError(absl::StatusCode::kResourceExhausted, what);
  }
  AdviseLargePages(large, bytes);
  std::memcpy(large, pages, bytes);
  // In one call: who reads meanwhile finds either, or waits for the pages.
  if (mremap(large, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages) != MAP_FAILED) {
    return absl::OkStatus();
  }
  const absl::Status status = PagesError(absl::StatusCode::kResourceExhausted, what);
  FreePages(large, bytes);
  // The system looks whether it can before it takes away what was there. If it ever does not, who
  // reads would end the process less plainly.
  std::vector<unsigned char> resident(bytes / PageBytes());
  STRATA_CHECK(mincore(pages, bytes, resident.data()) == 0);
  return status;
}

double QuotaCores(const std::string& root) {
  double cores = std::numeric_limits<double>::infinity();
  for (const std::string& folder : CgroupFolders(root, "")) {
    cores = std::min(cores, CoresOf(FirstLine(folder + "/cpu.max")));
  }
  for (const std::string& folder : CgroupFolders(root, "cpu")) {
    cores = std::min(cores, CoresOf(FirstLine(folder + "/cpu.cfs_quota_us") + " " +
                                    FirstLine(folder + "/cpu.cfs_period_us")));
  }
  return cores;
}

uint32_t UsableCores(const std::string& root) {
  double cores = std::max(1u, std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    cores = CPU_COUNT(&set);
  }
  cores = std::min(cores, std::ceil(QuotaCores(root)));
  return std::max(1u, static_cast<uint32_t>(cores));
}

}  // namespace strata
