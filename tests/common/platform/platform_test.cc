// Built twice: against this system's platform library and against the POSIX twin.
#include "common/platform/platform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>
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

TEST(Platform, UsableCoresAreSomeOfTheSystems) {
  EXPECT_GE(UsableCores(), 1u);
  EXPECT_LE(UsableCores(), static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF)));
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
