#include "common/checkpoint/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include "common/checkpoint/file_reader.h"
#include "tests/common/checkpoint/made_checkpoint.h"

namespace strata {
namespace {

using testing::TempFolder;

std::string_view Contents(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

TEST(MappedFile, HoldsTheWholeFile) {
  TempFolder folder;
  const std::string contents(100000, 'q');
  folder.Write("f", contents);
  auto file = MappedFile::Open(folder.File("f"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(Contents(*file), contents);
  file->Evict(0, file->size());
  file->Evict(1, 5);
  EXPECT_EQ(Contents(*file), contents);
  MappedFile moved = *std::move(file);
  EXPECT_EQ(Contents(moved), contents);
}

TEST(MappedFile, TakesAnEmptyFile) {
  TempFolder folder;
  folder.Write("f", "");
  const auto file = MappedFile::Open(folder.File("f"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), 0);
}

TEST(MappedFile, FollowsSymlinks) {
  TempFolder folder;
  folder.Write("f", "abc");
  ASSERT_EQ(symlink(folder.File("f").c_str(), folder.File("link").c_str()), 0);
  const auto file = MappedFile::Open(folder.File("link"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(Contents(*file), "abc");
}

TEST(MappedFile, SaysWhatCannotBeOpened) {
  TempFolder folder;
  const auto absent = MappedFile::Open(folder.File("absent"));
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(absent.status().message()).find(folder.File("absent")), std::string::npos);
  EXPECT_EQ(MappedFile::Open(folder.path()).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(mkfifo(folder.File("pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(folder.File("pipe")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(FileReader, ReadsRangesAndRefusesToReadPastTheEnd) {
  TempFolder folder;
  folder.Write("f", "0123456789");
  const auto file = FileReader::Open(folder.File("f"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), 10);
  char out[4];
  ASSERT_TRUE(file->ReadAt(3, out, 4).ok());
  EXPECT_EQ(std::string_view(out, 4), "3456");
  EXPECT_EQ(file->ReadAt(8, out, 4).code(), absl::StatusCode::kOutOfRange);
}

TEST(FileReader, NoticesAChange) {
  TempFolder folder;
  folder.Write("f", "0123456789");
  const auto file = FileReader::Open(folder.File("f"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*file->CurrentIdentity(), file->identity());
  folder.Write("f", "01234567890");
  EXPECT_FALSE(*file->CurrentIdentity() == file->identity());
}

TEST(ReadSmallFile, RefusesALargeOne) {
  TempFolder folder;
  folder.Write("f", "0123456789");
  EXPECT_EQ(*ReadSmallFile(folder.File("f"), 10), "0123456789");
  EXPECT_EQ(ReadSmallFile(folder.File("f"), 9).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace strata
