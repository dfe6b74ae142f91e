#include "worker/ranks/rank_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/digest.h"
#include "common/status.h"
#include "worker/collective/collective.h"

namespace strata {
namespace {

using ::testing::ElementsAre;

constexpr RankCallLimits kLimits = {
    .rows = 8, .items = 3, .groups = 2, .table_pages = 4, .page_bytes = 64};

std::vector<uint8_t> Encoded(const RankCall& call, uint64_t number = 1) {
  std::vector<uint8_t> frame;
  EncodeRankCall(call, 7, number, &frame);
  return frame;
}

absl::StatusOr<RankCallHead> HeadOf(const std::vector<uint8_t>& frame,
                                    const RankCallLimits& limits = kLimits) {
  return DecodeRankCallHead(
      std::span<const uint8_t, kRankCallHeadBytes>(frame.data(), kRankCallHeadBytes), limits);
}

std::span<const uint8_t> BodyOf(const std::vector<uint8_t>& frame) {
  return std::span(frame).subspan(kRankCallHeadBytes);
}

absl::Status Decoded(const std::vector<uint8_t>& frame, HeldRankCall* held,
                     const RankCallLimits& limits = kLimits) {
  const auto head = HeadOf(frame, limits);
  RETURN_IF_ERROR(head.status());
  return held->Decode(*head, BodyOf(frame), limits);
}

// A frame of any bytes behind a right head.
std::vector<uint8_t> FrameOf(RankCallKind kind, const std::vector<uint32_t>& words) {
  std::vector<uint8_t> frame = Encoded({.kind = RankCallKind::kWritePage, .page_bytes = {}});
  frame.resize(kRankCallHeadBytes);
  const auto* bytes = reinterpret_cast<const uint8_t*>(words.data());
  const uint64_t size = words.size() * sizeof(uint32_t);
  const uint32_t crc = Crc32c(0, bytes, size);
  std::memcpy(frame.data() + 8, &kind, sizeof(kind));
  std::memcpy(frame.data() + 32, &size, sizeof(size));
  std::memcpy(frame.data() + 40, &crc, sizeof(crc));
  const uint32_t head_crc = Crc32c(0, frame.data(), 44);
  std::memcpy(frame.data() + 44, &head_crc, sizeof(head_crc));
  frame.insert(frame.end(), bytes, bytes + size);
  return frame;
}

class RankCallTest : public ::testing::Test {
 protected:
  RankCallTest() {
    items_[0].tables = tables_;
    items_[1].tables = std::span(tables_).first(2);
  }

  const std::vector<PageId> long_ = {5, 9, 2, 11};
  const std::vector<PageId> short_ = {7};
  // Of the first item tables with more pages than it sees; the second sees three.
  const std::vector<PageTableView> tables_ = {{0, long_}, {2, short_}};
  std::vector<BatchItem> items_ = {{0, 3, 14, {}, 1}, {3, 2, 40, {}, 0}};
  HeldRankCall held_;
};

TEST_F(RankCallTest, ABatchComesWithItsItemsAndThePagesThatTheySee) {
  const std::vector<uint32_t> ids = {1, 2, 3, 4, 5};
  const auto frame = Encoded({.kind = RankCallKind::kBegin, .batch = {5, ids, items_}}, 3);
  const auto head = HeadOf(frame);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->epoch, 7u);
  EXPECT_EQ(head->number, 3u);
  ASSERT_TRUE(held_.Decode(*head, BodyOf(frame), kLimits).ok());
  const Batch& batch = held_.call().batch;
  EXPECT_EQ(batch.rows, 5u);
  EXPECT_TRUE(batch.token_ids.empty());
  ASSERT_EQ(batch.items.size(), 2u);
  const auto pages = [&](size_t item, size_t group) {
    const PageTableView& table = batch.items[item].tables[group];
    return std::make_pair(table.first_page,
                          std::vector<PageId>(table.pages.begin(), table.pages.end()));
  };
  using Pages = std::pair<uint32_t, std::vector<PageId>>;
  EXPECT_EQ(batch.items[0].first_row, 0u);
  EXPECT_EQ(batch.items[0].rows, 3u);
  EXPECT_EQ(batch.items[0].position, 14u);
  EXPECT_EQ(batch.items[0].rotary_variant, 1u);
  EXPECT_EQ(pages(0, 0), Pages(0, {5, 9}));
  EXPECT_EQ(pages(0, 1), Pages(2, {}));  // Behind what it sees.
  EXPECT_EQ(batch.items[1].first_row, 3u);
  EXPECT_EQ(batch.items[1].position, 40u);
  EXPECT_EQ(pages(1, 0), Pages(0, {5, 9, 2}));
  EXPECT_EQ(pages(1, 1), Pages(2, {7}));
}

TEST_F(RankCallTest, TheBatchStaysWhileOtherCallsCome) {
  ASSERT_TRUE(
      Decoded(Encoded({.kind = RankCallKind::kBegin, .batch = {5, {}, items_}}), &held_).ok());
  const std::vector<uint32_t> rows = {2, 4};
  ASSERT_TRUE(
      Decoded(Encoded({.kind = RankCallKind::kAttentionOfSome, .layer = 6, .rows = rows}), &held_)
          .ok());
  EXPECT_EQ(held_.call().kind, RankCallKind::kAttentionOfSome);
  EXPECT_EQ(held_.call().layer, 6u);
  EXPECT_THAT(held_.call().rows, ElementsAre(2, 4));
  EXPECT_EQ(held_.call().batch.rows, 5u);
  EXPECT_EQ(held_.call().batch.items[1].tables[0].pages[2], 2u);
}

TEST_F(RankCallTest, EachKindOfCallIsReadAsItWasWritten) {
  const auto read = [&](const RankCall& call) -> const RankCall& {
    const absl::Status status = Decoded(Encoded(call), &held_);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(held_.call().kind, call.kind);
    return held_.call();
  };
  EXPECT_EQ(read({.kind = RankCallKind::kAttention, .layer = 9}).layer, 9u);
  EXPECT_EQ(read({.kind = RankCallKind::kMlp, .layer = 3}).layer, 3u);
  const std::vector<uint32_t> rows = {0, 7};
  EXPECT_THAT(read({.kind = RankCallKind::kHead, .rows = rows}).rows, ElementsAre(0, 7));
  EXPECT_TRUE(read({.kind = RankCallKind::kHead}).rows.empty());
  const RankCall& copy = read({.kind = RankCallKind::kCopyPage, .group = 1, .page = 3, .to = 4});
  EXPECT_EQ(copy.group, 1u);
  EXPECT_EQ(copy.page, 3u);
  EXPECT_EQ(copy.to, 4u);
  const std::vector<uint64_t> kv = {uint64_t{1} << 40, 5};
  EXPECT_THAT(read({.kind = RankCallKind::kResizeKv, .kv_pages = kv}).kv_pages,
              ElementsAre(uint64_t{1} << 40, 5));
  EXPECT_EQ(read({.kind = RankCallKind::kReadPage, .group = 1, .page = 8}).page, 8u);
  const std::vector<uint8_t> bytes = {1, 2, 3};
  EXPECT_THAT(read({.kind = RankCallKind::kWritePage, .group = 0, .page = 2, .page_bytes = bytes})
                  .page_bytes,
              ElementsAre(1, 2, 3));
  EXPECT_EQ(read({.kind = RankCallKind::kEnd, .why = "unloaded"}).why, "unloaded");
  EXPECT_EQ(read({.kind = RankCallKind::kEnd, .why = std::string(5000, 'x')}).why.size(),
            kMaxEndBytes);
  for (const RankCallKind kind :
       {RankCallKind::kShareResidual, RankCallKind::kReadLogits, RankCallKind::kAlive}) {
    read({.kind = kind});
  }
}

TEST_F(RankCallTest, AFrameWithAnyBitChangedIsRefused) {
  const auto frame = Encoded({.kind = RankCallKind::kBegin, .batch = {5, {}, items_}});
  for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    std::vector<uint8_t> changed = frame;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const absl::Status status = Decoded(changed, &held_);
    EXPECT_EQ(ReasonOf(status), kRankFrame) << bit;
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  }
}

TEST_F(RankCallTest, WhatIsLargerThanTheStagesLargestBatchIsRefusedByItsHead) {
  const std::vector<uint32_t> rows(9);
  const std::vector<uint8_t> page(65);
  const std::vector<uint64_t> groups(3);
  for (const RankCall& call : {RankCall{.kind = RankCallKind::kHead, .rows = rows},
                               RankCall{.kind = RankCallKind::kAttentionOfSome, .rows = rows},
                               RankCall{.kind = RankCallKind::kWritePage, .page_bytes = page},
                               RankCall{.kind = RankCallKind::kResizeKv, .kv_pages = groups}}) {
    EXPECT_EQ(ReasonOf(HeadOf(Encoded(call)).status()), kRankFrame);
  }
  EXPECT_FALSE(HeadOf(FrameOf(RankCallKind::kAlive, {1})).ok());
  EXPECT_FALSE(HeadOf(FrameOf(static_cast<RankCallKind>(0), {})).ok());
  EXPECT_FALSE(HeadOf(FrameOf(static_cast<RankCallKind>(14), {})).ok());
}

TEST_F(RankCallTest, WhatIsNotMadeAsItsKindIsRefused) {
  const auto refused = [&](RankCallKind kind, const std::vector<uint32_t>& words) {
    const auto frame = FrameOf(kind, words);
    EXPECT_TRUE(HeadOf(frame).ok());
    return ReasonOf(Decoded(frame, &held_)) == kRankFrame;
  };
  EXPECT_TRUE(refused(RankCallKind::kAttention, {}));
  EXPECT_TRUE(refused(RankCallKind::kCopyPage, {1, 2}));
  EXPECT_TRUE(refused(RankCallKind::kReadPage, {1}));
  EXPECT_TRUE(refused(RankCallKind::kResizeKv, {1, 0}));  // Of one group.
  EXPECT_TRUE(refused(RankCallKind::kAttentionOfSome, {}));
  // rows, items; rows, position, variant, then a table of each group: first page, count, pages.
  EXPECT_FALSE(refused(RankCallKind::kBegin, {2, 1, 2, 0, 0, 0, 1, 5, 0, 0}));
  EXPECT_TRUE(refused(RankCallKind::kBegin, {2, 1, 2, 0, 0, 0, 1, 5, 0, 0, 0}));
  EXPECT_TRUE(refused(RankCallKind::kBegin, {2, 1, 2, 0, 0, 0, 1, 5, 0}));
  EXPECT_TRUE(refused(RankCallKind::kBegin, {3, 1, 2, 0, 0, 0, 1, 5, 0, 0}));
  EXPECT_TRUE(refused(RankCallKind::kBegin, {2, 1, 3, 0, 0, 0, 1, 5, 0, 0}));
  EXPECT_TRUE(refused(RankCallKind::kBegin, {9, 1, 9, 0, 0, 0, 1, 5, 0, 0}));
  EXPECT_TRUE(refused(RankCallKind::kBegin, {2, 4, 2, 0, 0, 0, 1, 5, 0, 0}));
  EXPECT_TRUE(refused(RankCallKind::kBegin, {2, 1, 2, 0, 0, 0, 5, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_TRUE(refused(RankCallKind::kBegin, {2, 1, 2, 0, 0, 0, 0xffffffff, 5, 0, 0}));
  EXPECT_TRUE(held_.call().batch.items.empty());
}

TEST_F(RankCallTest, LimitsAreThoseOfTheLargestBatch) {
  StageSpec spec;
  spec.max_batch_tokens = 12;
  spec.max_batch_items = 4;
  spec.context = 33;
  spec.model.kv_groups.resize(2);
  const RankCallLimits limits = LimitsOf(spec, 100);
  EXPECT_EQ(limits.rows, 12u);
  EXPECT_EQ(limits.items, 4u);
  EXPECT_EQ(limits.groups, 2u);
  EXPECT_EQ(limits.table_pages, 3u);
  EXPECT_EQ(limits.page_bytes, 100u);
}

}  // namespace
}  // namespace strata
