#include "worker/backend/cpu/threads/page_mover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/platform/platform.h"
#include "common/random.h"
#include "tests/can_map.h"
#include "worker/backend/cpu/threads/page_buffer.h"

namespace strata::cpu {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

TEST(PageBufferTest, BytesBeginOnALargePageAndAreZeros) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{65}, 3 * kMiB + 1}) {
    PageBuffer buffer;
    ASSERT_TRUE(buffer.Allocate(bytes, "a test").ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.as()) % kLargePageBytes, 0u);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(std::string(reinterpret_cast<char*>(buffer.as()), bytes), std::string(bytes, '\0'));
    std::memset(buffer.as(), 'x', bytes);
    PageBuffer other = std::move(buffer);
    EXPECT_EQ(other.bytes(), bytes);
    buffer = PageBuffer();
    EXPECT_EQ(buffer.bytes(), 0u);
    EXPECT_EQ(std::count(other.as(), other.as() + bytes, 'x'), static_cast<std::ptrdiff_t>(bytes));
  }
  PageBuffer endless;
  const absl::Status status = endless.Allocate(size_t{1} << 60, "a test");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a test"));
}

// Offsets and bytes, from `base` on.
using Pieces = std::vector<std::pair<size_t, size_t>>;
Pieces PiecesOf(const Pieces& mapped) {
  uint8_t* const base = reinterpret_cast<uint8_t*>(uintptr_t{1} << 40);
  std::vector<std::span<uint8_t>> spans;
  for (const auto& [at, bytes] : mapped) {
    spans.emplace_back(base + at, bytes);
  }
  Pieces pieces;
  for (const std::span<uint8_t> piece : PageMover::PiecesOf(spans)) {
    pieces.emplace_back(piece.data() - base, piece.size());
  }
  return pieces;
}

TEST(PageMoverTest, PiecesAreTheLargePagesThatAnythingMappedLiesOn) {
  constexpr size_t kLarge = kLargePageBytes;
  EXPECT_EQ(PiecesOf({}), Pieces());
  EXPECT_EQ(PiecesOf({{4096, 1}}), (Pieces{{0, kLarge}}));
  EXPECT_EQ(PiecesOf({{kLarge - 1, 2}}), (Pieces{{0, 2 * kLarge}}));
  // Parts of the same large page, and of the next, in any order.
  EXPECT_EQ(PiecesOf({{kLarge, 4096}, {8192, 100}, {0, 4096}}), (Pieces{{0, 2 * kLarge}}));
  // What lies between is left alone.
  EXPECT_EQ(PiecesOf({{0, 4096}, {2 * kLarge, 4096}}), (Pieces{{0, kLarge}, {2 * kLarge, kLarge}}));
  // None is larger than a piece may be.
  constexpr size_t kMost = PageMover::kPieceBytes;
  EXPECT_EQ(PiecesOf({{0, 2 * kMost + 1}}),
            (Pieces{{0, kMost}, {kMost, kMost}, {2 * kMost, kLarge}}));
  EXPECT_EQ(PiecesOf({{0, kMost - kLarge}, {kMost - kLarge, 3 * kLarge}}),
            (Pieces{{0, kMost}, {kMost, 2 * kLarge}}));
}

class MappedBuffer {
 public:
  explicit MappedBuffer(size_t bytes) : file_(std::tmpfile()) {
    for (size_t i = 0; i < bytes; i += 4) {
      const uint32_t word = Philox(1, 0, static_cast<uint32_t>(i));
      bytes_.append(reinterpret_cast<const char*>(&word), std::min<size_t>(4, bytes - i));
    }
    EXPECT_EQ(std::fwrite(bytes_.data(), 1, bytes, file_), bytes);
    EXPECT_EQ(std::fflush(file_), 0);
    EXPECT_TRUE(buffer_.Allocate(bytes, "a test").ok());
  }
  ~MappedBuffer() { std::fclose(file_); }
  absl::Status Map() { return MapFile(fileno(file_), buffer_.as(), buffer_.bytes()); }
  std::span<uint8_t> memory() const { return {buffer_.as(), buffer_.bytes()}; }
  bool IsTheFiles() const { return std::memcmp(buffer_.as(), bytes_.data(), bytes_.size()) == 0; }
  // From now on only what was moved can be read.
  void Truncate() { ASSERT_EQ(ftruncate(fileno(file_), 0), 0); }

 private:
  std::FILE* const file_;
  std::string bytes_;
  PageBuffer buffer_;
};

// What a mover tells; the rest may be read after `times`.
struct Told {
  PageMover::DoneFn Fn() {
    return [this](const absl::Status& status, uint64_t moved) {
      last = status;
      moved_bytes = moved;
      ++times;
    };
  }
  absl::Status last;
  uint64_t moved_bytes = 0;
  std::atomic<int> times = 0;
};

TEST(PageMoverTest, AllIsMovedWhileOthersReadIt) {
  if (!testing::CanMap()) {
    GTEST_SKIP() << "files are not mapped here";
  }
  MappedBuffer buffer(PageMover::kPieceBytes + 5 * kMiB + 77);
  ASSERT_TRUE(buffer.Map().ok());
  Told told;
  {
    const PageMover mover({buffer.memory()}, told.Fn());
    for (bool done = false; !done;) {
      done = told.times > 0;
      ASSERT_TRUE(buffer.IsTheFiles());
    }
    EXPECT_EQ(PageMover::UnmovedBytes(), 0u);
  }
  EXPECT_EQ(told.times, 1);
  EXPECT_TRUE(told.last.ok()) << told.last;
  EXPECT_EQ(told.moved_bytes, PageMover::kPieceBytes + 6 * kMiB);
  buffer.Truncate();
  EXPECT_TRUE(buffer.IsTheFiles());
}

TEST(PageMoverTest, WhereMemoryIsShortTheRestStaysWhereItIs) {
  if (!testing::CanMap()) {
    GTEST_SKIP() << "files are not mapped here";
  }
  MappedBuffer buffer(2 * PageMover::kPieceBytes + 1);
  ASSERT_TRUE(buffer.Map().ok());
  Told told;
  {
    int asked = 0;
    const PageMover mover({buffer.memory()}, told.Fn(),
                          [&] { return (++asked == 1 ? 2 : 1) * PageMover::kPieceBytes; });
    while (told.times == 0) {
      ASSERT_TRUE(buffer.IsTheFiles());
    }
    EXPECT_EQ(PageMover::UnmovedBytes(), PageMover::kPieceBytes + kLargePageBytes);
  }
  EXPECT_EQ(PageMover::UnmovedBytes(), 0u);
  EXPECT_EQ(told.last.code(), absl::StatusCode::kResourceExhausted) << told.last;
  EXPECT_EQ(told.moved_bytes, PageMover::kPieceBytes);
  EXPECT_TRUE(buffer.IsTheFiles());
}

TEST(PageMoverTest, WhoIsNotWaitedForLeavesTheRestWhereItIs) {
  if (!testing::CanMap()) {
    GTEST_SKIP() << "files are not mapped here";
  }
  MappedBuffer buffer(4 * PageMover::kPieceBytes);
  ASSERT_TRUE(buffer.Map().ok());
  Told told;
  // It is ended before it has moved anything, whatever either thread waits for.
  std::atomic<bool> ends = false;
  auto mover = std::make_unique<PageMover>(std::vector{buffer.memory()}, told.Fn(), [&] {
    while (!ends) {
      std::this_thread::yield();
    }
    return 2 * PageMover::kPieceBytes;
  });
  ends = true;
  mover.reset();
  EXPECT_EQ(told.times, 0) << "it is told when all is moved";
  EXPECT_EQ(PageMover::UnmovedBytes(), 0u);
  EXPECT_TRUE(buffer.IsTheFiles());
}

}  // namespace
}  // namespace strata::cpu
