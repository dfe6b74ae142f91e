// Built twice: against this system's platform library and against the POSIX twin.
#include "common/platform/platform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

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

TEST(Platform, UsableCoresAreSomeOfTheSystems) {
  EXPECT_GE(UsableCores(), 1u);
  EXPECT_LE(UsableCores(), static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF)));
}

// False where the platform library knows nothing of cores: the POSIX twin.
bool KnowsCores() { return !UsableTopology().cores.empty(); }

TEST(Platform, TopologyListsTheCoresThatTheProcessMayUse) {
  const Topology topology = UsableTopology();
  if (topology.cores.empty()) {
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
  if (before.cores.empty()) {
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

TEST(Platform, LargePagesAreReported) {
  EXPECT_THAT(LargePageMode(), ::testing::AnyOf("always", "madvise", "never", ""));
  EXPECT_LE(LargePageBytes(), ResidentMemoryBytes() + 64 * kMiB);
}

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
