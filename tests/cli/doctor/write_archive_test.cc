#include "cli/doctor/write_archive.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "cli/doctor/run_program.h"
#include "common/status.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds kLong{60};

std::string Path(const std::string& name) {
  const fs::path path = fs::path(::testing::TempDir()) / ("archive-" + name);
  fs::remove(path);
  return path.string();
}

TEST(ArchiveTest, ItHasItsFilesAndIsItsUsersAlone) {
  ArchiveFiles files;
  files.Add("log/a b.log", "one\n");
  files.Add("c.json", "{}\n");
  const std::string path = Path("files.tar.gz");
  ASSERT_TRUE(WriteArchive(path, "top", std::move(files).Take()).ok());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto listed = RunProgram({"tar", "-tzf", path}, {}, kLong, 1 << 16);
  ASSERT_TRUE(listed.ok());
  EXPECT_NE(listed->out.find("top/CONTENTS\n"), std::string::npos) << listed->out;
  EXPECT_NE(listed->out.find("top/log/a_b.log\n"), std::string::npos) << listed->out;
  EXPECT_EQ(ReasonOf(WriteArchive(path, "top", {})), "FILE_EXISTS");
}

TEST(ArchiveTest, LongFilesLoseTheirBeginningAndTooManyAreLeftOut) {
  ArchiveFiles files;
  files.Add("long", std::string(kMaxArchiveFileBytes, 'a') + "end");
  for (size_t i = 0; i < kMaxArchiveBytes / kMaxArchiveFileBytes; ++i) {
    files.Add("f" + std::to_string(i), std::string(kMaxArchiveFileBytes, 'b'));
  }
  const auto taken = std::move(files).Take();
  EXPECT_EQ(taken.size(), 1 + kMaxArchiveBytes / kMaxArchiveFileBytes);
  EXPECT_EQ(taken[1].second.size(), kMaxArchiveFileBytes);
  EXPECT_TRUE(taken[1].second.ends_with("end"));
  EXPECT_NE(taken[0].second.find("left out"), std::string::npos);
}

TEST(RunProgramTest, ItTakesWhatAProgramSaysAndHowItEnds) {
  const auto run = RunProgram({"sh", "-c", "echo out; echo err >&2; echo $X; exit 3"}, {{"X", "y"}},
                              kLong, 1 << 16);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->exit_status, 3);
  EXPECT_EQ(run->out, "out\ny\n");
  EXPECT_EQ(run->err, "err\n");
  const auto killed = RunProgram({"sh", "-c", "kill -9 $$"}, {}, kLong, 100);
  ASSERT_TRUE(killed.ok());
  EXPECT_EQ(killed->signal, 9);
}

TEST(RunProgramTest, ItIsBoundedInTimeAndBytes) {
  const auto hangs = RunProgram({"sleep", "1000"}, {}, std::chrono::milliseconds(50), 100);
  EXPECT_EQ(ReasonOf(hangs.status()), "PROGRAM_HANGS");
  const auto much = RunProgram({"sh", "-c", "head -c 100000 /dev/zero"}, {}, kLong, 100);
  ASSERT_TRUE(much.ok());
  EXPECT_EQ(much->out.size(), 100u);
  EXPECT_EQ(ReasonOf(RunProgram({"no-such-program"}, {}, kLong, 100).status()), "NO_PROGRAM");
}

}  // namespace
}  // namespace strata::cli
