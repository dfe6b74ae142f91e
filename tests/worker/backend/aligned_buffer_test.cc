#include "worker/backend/cpu/threads/aligned_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "common/platform/platform.h"

namespace strata::cpu {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(AlignedBufferTest, BytesBeginAtACacheLineAndAreZeros) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{65}, 3 * kMiB}) {
    AlignedBuffer buffer;
    ASSERT_TRUE(buffer.Allocate(bytes, "a test").ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.as()) % kCacheLineBytes, 0u);
    EXPECT_GE(buffer.bytes(), bytes);
    EXPECT_EQ(std::string(buffer.as<char>(), buffer.bytes()), std::string(buffer.bytes(), '\0'));
  }
}

// As packed weights are: filled by whoever asked for them.
TEST(AlignedBufferTest, LargeOnesAreInLargePages) {
  if (LargePageMode() != "always" && LargePageMode() != "madvise") {
    GTEST_SKIP() << "the system uses no large pages";
  }
  const uint64_t before = LargePageBytes();
  AlignedBuffer buffer;
  ASSERT_TRUE(buffer.Allocate(64 * kMiB, "a test", Fill::kNone).ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.as()) % (2 * kMiB), 0u);
  std::memset(buffer.as(), 'x', buffer.bytes());
  EXPECT_GE(LargePageBytes(), before + 2 * kMiB);
}

}  // namespace
}  // namespace strata::cpu
