// Whole pages, and maps of files that move. Built twice, as platform_test.cc is.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "common/platform/platform.h"
#include "tests/can_map.h"

namespace strata {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(PagesTest, PagesAreZerosWhereTheyWereAskedFor) {
  for (const size_t alignment : {PageBytes(), 2 * kMiB}) {
    for (const size_t bytes : {size_t{1}, 3 * kMiB + 1}) {
      uint8_t* const pages = AllocatePages(bytes, alignment);
      ASSERT_NE(pages, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(pages) % alignment, 0u);
      const size_t whole = RoundUpToPages(bytes);
      EXPECT_EQ(std::count(pages, pages + whole, 0), static_cast<std::ptrdiff_t>(whole));
      std::memset(pages, 'x', whole);
      FreePages(pages, bytes);
    }
  }
}

// Random bytes in a file without a name, and whole pages of memory beside each other.
class MapTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 9 * kMiB + 123;
  static constexpr size_t kReserved = 12 * kMiB;

  void SetUp() override {
    std::mt19937 random(1);
    for (size_t i = 0; i < kBytes; ++i) {
      bytes_.push_back(static_cast<char>(random()));
    }
    file_ = std::tmpfile();
    ASSERT_NE(file_, nullptr);
    ASSERT_EQ(std::fwrite(bytes_.data(), 1, kBytes, file_), kBytes);
    ASSERT_EQ(std::fflush(file_), 0);
    pages_ = AllocatePages(kReserved, 2 * kMiB);
    ASSERT_NE(pages_, nullptr);
    std::memset(pages_, 'x', kReserved);
    if (!testing::CanMap()) {
      const absl::Status status = MapFile(fileno(file_), pages_, kBytes);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
      std::memset(pages_, 'y', kReserved);
      GTEST_SKIP() << "files are not mapped here: " << status;
    }
  }
  void TearDown() override {
    std::fclose(file_);
    FreePages(pages_, kReserved);
  }
  bool IsTheFiles() const { return std::memcmp(pages_, bytes_.data(), kBytes) == 0; }

  std::string bytes_;
  std::FILE* file_ = nullptr;
  uint8_t* pages_ = nullptr;
};

TEST_F(MapTest, AMappedFileIsThereAndGoesAway) {
  absl::Status status = MapFile(fileno(file_), pages_, kBytes);
  ASSERT_TRUE(status.ok()) << status;
  status = PopulatePages(pages_, kBytes);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(IsTheFiles());
  const size_t whole = RoundUpToPages(kBytes);
  EXPECT_EQ(pages_[whole], 'x');
  status = UnmapFile(pages_, kBytes);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(std::count(pages_, pages_ + whole, 0), static_cast<std::ptrdiff_t>(whole));
  std::memset(pages_, 'y', whole);
  EXPECT_EQ(pages_[whole], 'x');
}

TEST_F(MapTest, WhatAFileLacksIsAnErrorNotTheEnd) {
  ASSERT_TRUE(MapFile(fileno(file_), pages_, kBytes).ok());
  ASSERT_EQ(ftruncate(fileno(file_), 5 * kMiB), 0);
  EXPECT_TRUE(PopulatePages(pages_, 5 * kMiB).ok());
  const absl::Status status = PopulatePages(pages_ + 4 * kMiB, kBytes - 4 * kMiB);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(UnmapFile(pages_, kBytes).ok());
  ASSERT_EQ(ftruncate(fileno(file_), 0), 0);
  EXPECT_FALSE(MapFile(fileno(file_), pages_, kBytes).ok());
  std::memset(pages_, 'y', kBytes);  // Its own again.
}

TEST_F(MapTest, PagesThatMoveStayWhatTheyAreForWhoReadsThem) {
  ASSERT_TRUE(MapFile(fileno(file_), pages_, kBytes).ok());
  std::atomic<bool> stop = false;
  std::atomic<int> rounds = 0;
  std::atomic<int> wrong = 0;
  std::thread reader([&] {
    while (!stop) {
      wrong += IsTheFiles() ? 0 : 1;
      ++rounds;
    }
  });
  const auto wait = [&] {
    for (const int end = rounds + 2; rounds < end;) {
      std::this_thread::yield();
    }
  };
  wait();
  const uint64_t before = LargePageBytes();
  // The last large page has memory behind the file's.
  for (size_t at = 0; at < kReserved; at += 4 * kMiB) {
    const absl::Status status = MovePages(pages_ + at, 4 * kMiB);
    EXPECT_TRUE(status.ok()) << status;
    wait();
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pages_[kReserved - 1], 'x');
  // Not the file's any more.
  ASSERT_EQ(ftruncate(fileno(file_), 0), 0);
  EXPECT_TRUE(IsTheFiles());
  std::memset(pages_, 'y', kReserved);
  if (LargePageMode() == "always" || LargePageMode() == "madvise") {
    EXPECT_GE(LargePageBytes(), before + 2 * kMiB);
  }
}

}  // namespace
}  // namespace strata
