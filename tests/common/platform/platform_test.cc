// Built twice: against this system's platform library and against the POSIX twin.
#include "common/platform/platform.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/platform/addresses.h"
#include "common/platform/heap.h"
#include "common/status.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::string EmptyFolder(const std::string& name) {
  // Both builds of this file may run at once.
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / (name + "." + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  return folder.string();
}

TEST(Platform, AvailableMemoryIsPartOfWhatTheSystemHas) {
  const uint64_t physical =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  EXPECT_GT(AvailableMemoryBytes(), kMiB);
  EXPECT_LE(AvailableMemoryBytes(), physical);
}

TEST(Platform, ResidentMemoryCountsWhatWasWritten) {
  EXPECT_GT(ResidentMemoryBytes(), kMiB / 4);
  const std::vector<char> written(256 * kMiB, 'x');
  EXPECT_GE(ResidentMemoryBytes(), written.size());
  EXPECT_EQ(written.back(), 'x');
}

TEST(Platform, TheHeapIsWhatWasAllocatedAndNotGivenBack) {
  const uint64_t before = HeapBytes();
  if (before == 0) {
    GTEST_SKIP() << "it cannot be told here";
  }
  {
    const std::vector<char> allocated(64 * kMiB, 'x');
    EXPECT_GE(HeapBytes(), before + allocated.size());
    EXPECT_EQ(allocated.back(), 'x');
  }
  EXPECT_LT(HeapBytes(), before + kMiB);
}

TEST(Platform, FilesMayBeOpenedUpToTheHardLimit) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low{std::min<rlim_t>(limit.rlim_max, 64), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const uint64_t files = RaiseOpenFiles();
  EXPECT_EQ(files, std::min<uint64_t>(limit.rlim_max, 65'536));
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, files);
  EXPECT_EQ(RaiseOpenFiles(), files);
}

// In a process of its own: niceness is not taken back.
TEST(Platform, WhoGivesWayNeverGivesWayLessThanBefore) {
  EXPECT_EXIT(
      {
        GiveWay(7);
        const int after = getpriority(PRIO_PROCESS, 0);
        GiveWay(3);
        std::exit(after >= 7 && getpriority(PRIO_PROCESS, 0) == after ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// False where the platform library knows nothing of cores and memory: the POSIX twin.
constexpr bool KnowsCores() {
#if defined(STRATA_TEST_KNOWS_CORES)
  return true;
#else
  return false;
#endif
}

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

// A made-up root with the files of cgroups.
class Cgroups {
 public:
  explicit Cgroups(const std::string& of_this_process) : root_(EmptyFolder("cgroup_test")) {
    Write("proc/self/cgroup", of_this_process);
  }
  ~Cgroups() { std::filesystem::remove_all(root_); }
  Cgroups(const Cgroups&) = delete;
  Cgroups& operator=(const Cgroups&) = delete;

  Cgroups& Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
    return *this;
  }
  // In sys/fs/cgroup, of version 2 and of version 1.
  Cgroups& Quota(const std::string& cgroup, const std::string& text) {
    return Write("sys/fs/cgroup/" + cgroup + "/cpu.max", text);
  }
  Cgroups& OldQuota(const std::string& cgroup, const std::string& quota,
                    const std::string& period) {
    Write("sys/fs/cgroup/" + cgroup + "/cpu.cfs_quota_us", quota);
    return Write("sys/fs/cgroup/" + cgroup + "/cpu.cfs_period_us", period);
  }
  Cgroups& Memory(const std::string& cgroup, const std::string& most, const std::string& current,
                  const std::string& stat = "") {
    const std::string folder = "sys/fs/cgroup/" + cgroup + "/memory.";
    return Write(folder + "max", most)
        .Write(folder + "current", current)
        .Write(folder + "stat", stat);
  }
  Cgroups& High(const std::string& cgroup, const std::string& bytes) {
    return Write("sys/fs/cgroup/" + cgroup + "/memory.high", bytes);
  }
  Cgroups& Memory1(const std::string& cgroup, const std::string& most, const std::string& current,
                   const std::string& stat = "") {
    const std::string folder = "sys/fs/cgroup/" + cgroup + "/memory.";
    return Write(folder + "limit_in_bytes", most)
        .Write(folder + "usage_in_bytes", current)
        .Write(folder + "stat", stat);
  }
  // As QuotaCores and UsableCores should give them.
  void Expect(double cores) const {
    EXPECT_EQ(QuotaCores(root_.string()), KnowsCores() ? cores : kNoQuota);
    const uint32_t all = UsableCores("/nowhere");
    const double whole = KnowsCores() ? std::ceil(cores) : kNoQuota;
    EXPECT_EQ(UsableCores(root_.string()), whole < all ? static_cast<uint32_t>(whole) : all);
  }
  void ExpectMemory(uint64_t bytes) const {
    EXPECT_EQ(QuotaMemoryBytes(root_.string()),
              KnowsCores() ? bytes : std::numeric_limits<uint64_t>::max());
  }

 private:
  const std::filesystem::path root_;
};

TEST(Platform, MemoryOfACgroupIsWhatItsLimitLeavesBesidePagesOfFiles) {
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  const std::string of_this = "0::/a/b";
  Cgroups(of_this).Memory("a/b", "1000", "300").ExpectMemory(700);
  Cgroups(of_this).Memory("a/b", "1000", "1300").ExpectMemory(0);
  Cgroups(of_this)
      .Memory("a/b", "1000", "900",
              "anon 200\nfile 700\nshmem 100\ninactive_file 400\nactive_file 200")
      .ExpectMemory(700);
  // Not of the same moment.
  Cgroups(of_this).Memory("a/b", "1000", "300", "inactive_file 301").ExpectMemory(1000);
  // The tightest up to the root counts.
  Cgroups(of_this).Memory("a/b", "1000", "300").Memory("a", "500", "300").ExpectMemory(200);
  Cgroups(of_this).Memory("a/b", "1000", "300").Memory("a", "max", "300").ExpectMemory(700);
  Cgroups("0::/a").Memory("a", "max", "300").ExpectMemory(kNone);
  Cgroups("0::/a").ExpectMemory(kNone);
}

TEST(Platform, MemoryAboveWhichTheSystemHoldsACgroupUpIsALimitToo) {
  const std::string of_this = "0::/a/b";
  Cgroups(of_this).Memory("a/b", "1000", "300").High("a/b", "500").ExpectMemory(200);
  Cgroups(of_this).Memory("a/b", "max", "300").High("a/b", "500").ExpectMemory(200);
  Cgroups(of_this).Memory("a/b", "1000", "300").High("a/b", "max").ExpectMemory(700);
  Cgroups(of_this)
      .Memory("a/b", "max", "300")
      .Memory("a", "max", "400")
      .High("a", "600")
      .ExpectMemory(200);
}

TEST(Platform, MemoryOfACgroupOfVersion1IsLimitedAsThatOfVersion2) {
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  const std::string of_this = "5:cpu,cpuacct:/x\n4:memory:/a/b";
  Cgroups(of_this).Memory1("memory/a/b", "1000", "300").ExpectMemory(700);
  Cgroups(of_this)
      .Memory1("memory/a/b", "1000", "900", "inactive_file 1\ntotal_inactive_file 400")
      .ExpectMemory(500);
  Cgroups(of_this)
      .Memory1("memory/a/b", "1000", "300")
      .Memory1("memory/a", "500", "300")
      .ExpectMemory(200);
  // What a container sees: the host's path, and its own cgroup as the mount.
  Cgroups(of_this).Memory1("memory", "1000", "300").ExpectMemory(700);
  Cgroups(of_this).Memory1("memory/a/b", "9223372036854771712", "300").ExpectMemory(kNone);
  // Both versions at once: each may limit.
  Cgroups(of_this + "\n0::/c")
      .Memory1("memory/a/b", "1000", "300")
      .Memory("c", "400", "300")
      .ExpectMemory(100);
}

TEST(Platform, UsableCoresAreSomeOfTheSystems) {
  EXPECT_GE(UsableCores(), 1u);
  EXPECT_LE(UsableCores(), static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF)));
}

TEST(Platform, APinnedThreadMayUseOneCore) {
  if (!KnowsCores()) {
    GTEST_SKIP() << "this platform library pins no threads";
  }
  std::thread([] {
    ASSERT_TRUE(PinThread(pthread_self(), UsableTopology().cores.back().number));
    EXPECT_EQ(UsableCores(), 1u);
  }).join();
}

TEST(Platform, TheSmallestQuotaUpToTheRootCounts) {
  const std::string inner = "0::/a/b/c";
  Cgroups(inner).Quota("a/b/c", "400000 100000").Quota("a", "800000 100000").Expect(4);
  Cgroups(inner).Quota("a/b/c", "400000 100000").Quota("a/b", "100000 100000").Expect(1);
  Cgroups(inner).Quota("a/b/c", "max 100000").Quota("a", "20000 20000").Expect(1);
  // A container's own cgroup is its root, whatever path the host calls it by.
  Cgroups("0::/docker/abc").Quota(".", "100000 50000").Expect(2);
  Cgroups("0::/").Quota(".", "100000 100000").Expect(1);
  // Another's, below and beside it.
  Cgroups("0::/a").Quota("a/b", "100000 100000").Quota("c", "100000 100000").Expect(kNoQuota);
}

TEST(Platform, APartOfACoreIsACore) {
  Cgroups("0::/a").Quota("a", "1000 100000").Expect(0.01);
  Cgroups("0::/a").Quota("a", "50000 100000").Expect(0.5);
  Cgroups("0::/a").Quota("a", "125000 100000").Expect(1.25);
  Cgroups("0::/a").Quota("a", "350000 100000").Expect(3.5);
}

TEST(Platform, CgroupsWithoutAQuotaLimitNothing) {
  Cgroups("0::/a").Expect(kNoQuota);
  Cgroups("0::/a").Quota("a", "max 100000").Expect(kNoQuota);
  Cgroups("4:cpu:/a").OldQuota("cpu/a", "-1", "100000").Expect(kNoQuota);
}

TEST(Platform, QuotasOfTheFirstVersionCountToo) {
  const std::string inner = "5:memory:/m\n4:cpu,cpuacct:/a/b\n0::/v2";
  // By the folder that systemd mounts, by the link beside it, and above the process's own.
  Cgroups(inner).OldQuota("cpu,cpuacct/a/b", "100000", "100000").Expect(1);
  Cgroups(inner).OldQuota("cpu/a/b", "50000", "100000").Expect(0.5);
  Cgroups(inner)
      .OldQuota("cpu/a/b", "-1", "100000")
      .OldQuota("cpu/a", "150000", "100000")
      .OldQuota("cpu", "400000", "100000")
      .Expect(1.5);
  Cgroups("4:cpu:/docker/abc").OldQuota("cpu", "100000", "100000").Expect(1);
  // Of another controller, and of one whose name begins alike.
  Cgroups("3:cpuacct:/a\n5:memory:/a")
      .OldQuota("cpuacct/a", "100000", "100000")
      .OldQuota("cpu/a", "100000", "100000")
      .Expect(kNoQuota);
  // Both versions: the smaller one.
  Cgroups("4:cpu:/a\n0::/a")
      .OldQuota("cpu/a", "200000", "100000")
      .Quota("a", "100000 100000")
      .Expect(1);
}

TEST(Platform, WhatIsNoQuotaLimitsNothing) {
  for (const char* text : {"", "\n", "max", "100000", "100000 0", "0 100000", "-100000 100000",
                           "100000 -100000", "many 100000", "100000 many", "nan nan", "inf 1"}) {
    SCOPED_TRACE(text);
    Cgroups("0::/a").Quota("a", text).Expect(kNoQuota);
  }
  for (const char* quota : {"", "0", "-1", "-100000", "max", "many"}) {
    SCOPED_TRACE(quota);
    Cgroups("4:cpu:/a").OldQuota("cpu/a", quota, "100000").Expect(kNoQuota);
  }
  Cgroups("4:cpu:/a").OldQuota("cpu/a", "100000", "").Expect(kNoQuota);
  Cgroups("4:cpu:/a").OldQuota("cpu/a", "100000", "0").Expect(kNoQuota);
  for (const char* lines :
       {"", "0", "0:", "0::", "nothing", ":::", "4:cpu", "4:cpu:", "::a", "\n"}) {
    SCOPED_TRACE(lines);
    Cgroups(lines).Quota("a", "100000 100000").OldQuota("cpu/a", "1", "1").Expect(kNoQuota);
  }
  // A path that is not absolute is no reason not to look at the root.
  Cgroups("0::a").Quota(".", "100000 100000").Expect(1);
}

TEST(Platform, TopologyListsTheCoresThatTheProcessMayUse) {
  const Topology topology = UsableTopology();
  if (!KnowsCores()) {
    EXPECT_TRUE(topology.cores.empty());
    EXPECT_EQ(topology.online, 0u);
    return;
  }
  EXPECT_GE(topology.cores.size(), UsableCores());
  EXPECT_GE(topology.online, topology.cores.size());
  EXPECT_TRUE(std::is_sorted(topology.cores.begin(), topology.cores.end(),
                             [](const Core& a, const Core& b) { return a.number < b.number; }));
}

TEST(Platform, TopologyIsWhatTheSystemsFilesSay) {
  const std::filesystem::path root = EmptyFolder("topology_test");
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  };
  // Two sockets of two cores with two threads each; core 9 says nothing about itself.
  write("cpu/online", "0-7,9");
  for (int n = 0; n < 8; ++n) {
    const std::string siblings = std::to_string(n % 4) + "," + std::to_string(n % 4 + 4);
    write("cpu/cpu" + std::to_string(n) + "/topology/thread_siblings_list", siblings);
  }
  write("node/node0/cpulist", "0-1,4-5");
  write("node/node3/cpulist", "2-3,6-7");
  write("node/node4/cpulist", "");  // Memory alone.
  write("node/online", "0,3-4");
  const Topology topology = ReadTopology(root.string(), {1, 5, 6, 9});
  if (!KnowsCores()) {
    EXPECT_TRUE(topology.cores.empty());
    return;
  }
  EXPECT_EQ(topology.online, 9u);
  std::vector<std::vector<uint32_t>> cores;
  for (const Core& core : topology.cores) {
    cores.push_back({core.number, core.physical, core.node});
  }
  EXPECT_EQ(cores,
            (std::vector<std::vector<uint32_t>>{{1, 1, 0}, {5, 1, 0}, {6, 2, 3}, {9, 9, 0}}));
}

TEST(Platform, APinnedThreadMayUseItsCoreAlone) {
  const Topology before = UsableTopology();
  EXPECT_FALSE(PinThread(pthread_self(), 1u << 20));
  if (!KnowsCores()) {
    EXPECT_FALSE(PinThread(pthread_self(), 0));
    return;
  }
  const uint32_t core = before.cores.back().number;
  Topology pinned;
  std::thread([&] {
    ASSERT_TRUE(PinThread(pthread_self(), core));
    pinned = UsableTopology();
  }).join();
  ASSERT_EQ(pinned.cores.size(), 1u);
  EXPECT_EQ(pinned.cores[0].number, core);
  EXPECT_EQ(UsableTopology().cores.size(), before.cores.size());
}

TEST(Platform, MemoryPutOnANodeKeepsItsBytes) {
  std::vector<char> memory(kMiB, 'x');
  const Topology topology = UsableTopology();
  // May be refused, in a container; a node that no machine has always is.
  PreferMemoryNode(memory.data() + 1, memory.size() - 1,
                   topology.cores.empty() ? 0 : topology.cores[0].node)
      .IgnoreError();
  EXPECT_EQ(ReasonOf(PreferMemoryNode(memory.data(), memory.size(), 1u << 20)), "MEMORY_NODE");
  EXPECT_EQ(std::count(memory.begin(), memory.end(), 'x'), static_cast<ptrdiff_t>(memory.size()));
}

#if defined(__linux__)
// Whole pages, of their own.
class Pages {
 public:
  explicit Pages(size_t bytes)
      : bytes_(bytes),
        data_(static_cast<char*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  const size_t bytes_;
  char* const data_;
};

// The one node that the page at `address` is preferred on; -1: any, or several.
int PreferredNode(const void* address) {
  int mode = MPOL_DEFAULT;
  unsigned long nodes[16] = {};  // The system call's. NOLINT(google-runtime-int)
  constexpr size_t kBits = sizeof(nodes[0]) * CHAR_BIT;
  if (syscall(SYS_get_mempolicy, &mode, nodes, std::size(nodes) * kBits, address, MPOL_F_ADDR) !=
          0 ||
      mode != MPOL_PREFERRED) {
    return -1;
  }
  int node = -1;
  for (size_t n = 0; n < std::size(nodes) * kBits; ++n) {
    if ((nodes[n / kBits] >> n % kBits & 1) != 0) {
      if (node >= 0) {
        return -1;
      }
      node = static_cast<int>(n);
    }
  }
  return node;
}

// The node that the page at `address` is on; less than 0 while it is on none.
int NodeOf(void* address) {
  int node = -1;
  return syscall(SYS_move_pages, 0, 1, &address, nullptr, &node, 0) == 0 ? node : -1;
}

TEST(Platform, WholePagesArePutOnTheNode) {
  if (!KnowsCores()) {
    GTEST_SKIP() << "this platform library knows no memory nodes";
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::set<uint32_t> nodes;
  for (const Core& core : UsableTopology().cores) {
    nodes.insert(core.node);
  }
  for (const uint32_t node : nodes) {
    Pages memory(8 * page);
    if (syscall(SYS_mbind, memory.data(), memory.bytes(), MPOL_DEFAULT, nullptr, 0, 0) != 0) {
      GTEST_SKIP() << "the system refuses mbind: " << std::strerror(errno);
    }
    std::memset(memory.data(), 'x', 4 * page);  // Some are there already.
    ASSERT_EQ(PreferredNode(memory.data()), -1);
    // From within page 1 to within page 6.
    const absl::Status status = PreferMemoryNode(memory.data() + page + 1, 5 * page, node);
    ASSERT_TRUE(status.ok()) << status;
    std::memset(memory.data(), 'x', memory.bytes());
    for (size_t i = 0; i < 8; ++i) {
      SCOPED_TRACE(i);
      char* const at = memory.data() + i * page;
      const bool whole = i >= 2 && i < 6;
      EXPECT_EQ(PreferredNode(at), whole ? static_cast<int>(node) : -1);
      if (whole && NodeOf(memory.data()) >= 0) {  // Where the system says where pages are.
        EXPECT_EQ(NodeOf(at), static_cast<int>(node));
      }
    }
  }
}

std::string LargePageModes() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(in, modes);
  return modes;
}

TEST(Platform, TheLargePageModeIsTheSystems) {
  const std::string modes = LargePageModes();
  if (!KnowsCores() || modes.empty()) {
    EXPECT_EQ(LargePageMode(), "");
    return;
  }
  EXPECT_THAT(LargePageMode(), ::testing::AnyOf("always", "madvise", "never"));
  EXPECT_THAT(modes, HasSubstr("[" + LargePageMode() + "]"));
}

TEST(Platform, MemoryThatIsAdvisedAndWrittenIsInLargePages) {
  constexpr size_t kBytes = 64 * kMiB;
  const uint64_t before = LargePageBytes();
  const Pages memory(kBytes);
  AdviseLargePages(memory.data(), memory.bytes());
  EXPECT_LT(LargePageBytes(), before + 2 * kMiB) << "before anything is written";
  std::memset(memory.data(), 'x', memory.bytes());
  if (!KnowsCores()) {
    EXPECT_EQ(LargePageBytes(), 0u);
    return;
  }
  if (const std::string modes = LargePageModes();
      modes.empty() || modes.find("[never]") != std::string::npos) {
    GTEST_SKIP() << "the system uses no large pages";
  }
  EXPECT_GE(LargePageBytes(), before + 2 * kMiB);
  EXPECT_LE(LargePageBytes(), before + 2 * kBytes);
}
#endif

TEST(Platform, NamesTheSystemAndTheMachine) {
#if defined(__linux__)
  EXPECT_THAT(PlatformName(), ::testing::StartsWith("linux-"));
#else
  EXPECT_THAT(PlatformName(), HasSubstr("-"));
#endif
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  EXPECT_EQ(HostName(), name);
}

TEST(Platform, AddressesAreThisMachinesAndNoLoopbacks) {
  const std::vector<std::string> addresses = MachineAddresses();
  EXPECT_EQ(std::set<std::string>(addresses.begin(), addresses.end()).size(), addresses.size());
  for (const std::string& address : addresses) {
    const bool v4 = address.find(':') == std::string::npos;
    sockaddr_in6 at6 = {};
    sockaddr_in at4 = {};
    at6.sin6_family = AF_INET6;
    at4.sin_family = AF_INET;
    ASSERT_EQ(v4 ? inet_pton(AF_INET, address.c_str(), &at4.sin_addr)
                 : inet_pton(AF_INET6, address.c_str(), &at6.sin6_addr),
              1)
        << address;
    EXPECT_FALSE(address.starts_with("127.") || address == "::1") << address;
    const int socket = ::socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM, 0);
    ASSERT_GE(socket, 0);
    EXPECT_EQ(v4 ? bind(socket, reinterpret_cast<sockaddr*>(&at4), sizeof(at4))
                 : bind(socket, reinterpret_cast<sockaddr*>(&at6), sizeof(at6)),
              0)
        << address << ": " << std::strerror(errno);
    close(socket);
  }
}

TEST(Platform, ASecondHolderOfADirectoryIsToldWhoHasIt) {
  const std::string dir = EmptyFolder("lock_test") + "/a/b";
  auto first = DirectoryLock::Acquire(dir);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = DirectoryLock::Acquire(dir);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ReasonOf(second.status()), "DATA_DIR_LOCKED");
  EXPECT_THAT(Describe(second.status()), HasSubstr(std::to_string(getpid())));
  first->reset();
  EXPECT_TRUE(DirectoryLock::Acquire(dir).ok());
}

TEST(Platform, ANewDataDirectoryIsItsOwnersAlone) {
  const std::string dir = EmptyFolder("mode_test");
  ASSERT_TRUE(DirectoryLock::Acquire(dir).ok());
  struct stat info {};
  ASSERT_EQ(stat(dir.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0700u);
}

TEST(Platform, ADirectoryThatCannotBeMadeIsRefused) {
  const auto lock = DirectoryLock::Acquire("/dev/null/data");
  EXPECT_EQ(ReasonOf(lock.status()), "DATA_DIR");
  EXPECT_THAT(Describe(lock.status()), HasSubstr("--data-dir"));
}

TEST(Platform, DataDirFollowsTheEnvironment) {
  EXPECT_EQ(DefaultDataDir("worker-a", [](const char*) { return "/state"; }), "/state");
  EXPECT_EQ(DefaultDataDir("worker-a",
                           [](const char* key) -> const char* {
                             return std::string_view(key) == "XDG_DATA_HOME" ? "/x" : nullptr;
                           }),
            "/x/strata/worker-a");
  EXPECT_EQ(DefaultDataDir("worker-a",
                           [](const char* key) -> const char* {
                             return std::string_view(key) == "HOME" ? "/home/me" : nullptr;
                           }),
            "/home/me/.local/share/strata/worker-a");
  EXPECT_EQ(DefaultDataDir("worker-a", [](const char*) -> const char* { return nullptr; }),
            "/var/lib/strata/worker-a");
}

}  // namespace
}  // namespace strata
