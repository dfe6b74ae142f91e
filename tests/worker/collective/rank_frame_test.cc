#include "worker/collective/rank_frame.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "common/digest.h"
#include "common/status.h"

namespace strata {
namespace {

using Bytes = std::array<uint8_t, kRankFrameHeadBytes>;

Bytes Encoded(const RankFrameHead& head) {
  Bytes bytes{};
  EncodeRankFrameHead(head, bytes);
  return bytes;
}

constexpr RankFrameHead kHead = {.kind = RankFrameKind::kGather,
                                 .rank = 3,
                                 .point = {uint64_t{1} << 40, 77, 5},
                                 .rows = 12,
                                 .shape = 0xabcdef01,
                                 .bytes = 4096,
                                 .crc = 0x12345678};

TEST(RankFrameTest, AHeadIsReadAsItWasWritten) {
  const auto read = DecodeRankFrameHead(Encoded(kHead));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, kHead);
}

TEST(RankFrameTest, AHeadWithAnyBitChangedIsRefused) {
  const Bytes bytes = Encoded(kHead);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    Bytes changed = bytes;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const auto read = DecodeRankFrameHead(changed);
    EXPECT_EQ(ReasonOf(read.status()), kRankFrame) << bit;
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(RankFrameTest, AHeadWithMoreBytesThanItsKindHasIsRefused) {
  const auto with = [](RankFrameKind kind, uint64_t bytes) {
    RankFrameHead head = kHead;
    head.kind = kind;
    head.bytes = bytes;
    return DecodeRankFrameHead(Encoded(head)).ok();
  };
  EXPECT_TRUE(with(RankFrameKind::kGather, kMaxRankFrameBytes));
  EXPECT_FALSE(with(RankFrameKind::kGather, kMaxRankFrameBytes + 1));
  EXPECT_TRUE(with(RankFrameKind::kGatherToFirst, kMaxRankFrameBytes));
  EXPECT_FALSE(with(RankFrameKind::kGatherToFirst, kMaxRankFrameBytes + 1));
  EXPECT_TRUE(with(RankFrameKind::kBarrier, 0));
  EXPECT_FALSE(with(RankFrameKind::kBarrier, 1));
  EXPECT_TRUE(with(RankFrameKind::kAbort, kMaxAbortBytes));
  EXPECT_FALSE(with(RankFrameKind::kAbort, kMaxAbortBytes + 1));
  EXPECT_FALSE(with(static_cast<RankFrameKind>(0), 0));
  EXPECT_FALSE(with(static_cast<RankFrameKind>(5), 0));
}

// Of 4096 rows what experts compute between their matrices, say.
TEST(RankFrameTest, AHeadMayHaveMoreBehindItThanActivationsBetweenStagesTake) {
  RankFrameHead head = kHead;
  head.kind = RankFrameKind::kGather;
  head.bytes = uint64_t{4096} * 8 * 14336 * sizeof(float);
  const auto read = DecodeRankFrameHead(Encoded(head));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->bytes, head.bytes);
}

TEST(RankFrameTest, OtherColumnsHaveAnotherShape) {
  const std::vector<ByteColumns> columns = {{0, 64}, {64, 128}};
  EXPECT_EQ(ShapeOf(columns), ShapeOf(std::vector<ByteColumns>{{0, 64}, {64, 128}}));
  EXPECT_NE(ShapeOf(columns), ShapeOf(std::vector<ByteColumns>{{0, 32}, {32, 128}}));
  EXPECT_NE(ShapeOf(columns), ShapeOf(std::vector<ByteColumns>{{0, 64}}));
  EXPECT_NE(ShapeOf(columns), ShapeOf({}));
}

}  // namespace
}  // namespace strata
