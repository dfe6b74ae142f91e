#include "cli/doctor/write_archive.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "common/platform/run_program.h"
#include "common/status.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

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
  const auto listed = RunProgram({"tar", "-tzf", path});
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

}  // namespace
}  // namespace strata::cli
