#include "worker/backend/mlx/key_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/status.h"

namespace strata::mlx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Page p of a sequence is page 100 + p.
struct Sequence {
  explicit Sequence(uint32_t pages, uint32_t first_page = 0) : pages(pages) {
    std::iota(this->pages.begin(), this->pages.end(), 100 + first_page);
    tables = {{first_page, this->pages}};
  }
  BatchItem Item(uint32_t first_row, uint32_t rows, uint32_t position) const {
    return {first_row, rows, position, tables};
  }
  std::vector<PageId> pages;
  std::vector<PageTableView> tables;
};

TEST(KeySpansTest, AShortSequenceMeetsNoMoreKeysThanItsLastSpanEndsWith) {
  const Sequence sequence(3);
  const std::vector<BatchItem> items = {sequence.Item(0, 7, 32)};
  const std::vector<KeySpan> spans = KeySpansOf(items, 0, 0);
  ASSERT_EQ(spans.size(), 1u);
  const KeySpan& span = spans[0];
  EXPECT_EQ(span.rows, 7u);
  EXPECT_EQ(span.length(), 39u);
  EXPECT_EQ(span.first_key, 0u);
  EXPECT_EQ(span.keys, 64u);
  // There is no fourth page yet: any of its own.
  EXPECT_THAT(span.pages, ElementsAre(100u, 101u, 102u, 100u));
}

TEST(KeySpansTest, RowsAreCutWhereASpanEnds) {
  const Sequence sequence(70);
  const std::vector<BatchItem> items = {sequence.Item(0, 600, 500)};
  const std::vector<KeySpan> spans = KeySpansOf(items, 0, 0);
  // Eight spans of 64 positions from 512 on, and of 128 from 1,024 on.
  ASSERT_EQ(spans.size(), 10u);
  EXPECT_EQ(spans[0].rows, 12u);
  EXPECT_EQ(spans[0].keys, 512u);
  EXPECT_EQ(spans[1].first_row, 12u);
  EXPECT_EQ(spans[1].position, 512u);
  EXPECT_EQ(spans[1].rows, 64u);
  EXPECT_EQ(spans[1].keys, 576u);
  EXPECT_EQ(spans[8].position, 960u);
  EXPECT_EQ(spans[8].keys, 1024u);
  EXPECT_EQ(spans[9].position, 1024u);
  EXPECT_EQ(spans[9].rows, 76u);
  EXPECT_EQ(spans[9].keys, 1152u);
  EXPECT_EQ(spans[9].length(), 1100u);
}

TEST(KeySpansTest, AnEighthOfTheKeysAtMostAreAttendedInVainWhereAContextIsLong) {
  for (uint32_t position = 0; position < 200'000; ++position) {
    const uint32_t tokens = SpanTokensAt(position);
    const uint32_t begin = position / tokens * tokens;
    // The whole span has one length, and begins where another one ends.
    ASSERT_EQ(SpanTokensAt(begin), tokens) << position;
    ASSERT_EQ(SpanTokensAt(begin + tokens - 1), tokens) << position;
    ASSERT_EQ((begin + tokens) % SpanTokensAt(begin + tokens), 0u) << position;
    ASSERT_LE(tokens - 1, std::max(kLeastSpanTokens - 1, position / 8)) << position;
  }
  EXPECT_EQ(SpanTokensAt(1'000'000), kMostSpanTokens);
}

// Alone, in a chunk or in a batch: the keys follow from the position.
TEST(KeySpansTest, ARowsKeysFollowFromItsPositionAlone) {
  const Sequence sequence(130);
  for (const uint32_t window : {0u, 20u, 100u, 700u}) {
    for (const uint32_t position : {0u, 31u, 32u, 38u, 511u, 512u, 575u, 576u, 1023u, 1500u}) {
      const std::vector<BatchItem> alone = {sequence.Item(0, 1, position)};
      const KeySpan one = KeySpansOf(alone, 0, window).at(0);
      for (const uint32_t before : {1u, 20u, 600u}) {
        const uint32_t begin = position < before ? 0 : position - before;
        const std::vector<BatchItem> chunk = {sequence.Item(0, 7, 30),
                                              sequence.Item(7, position + 1 - begin, begin)};
        const KeySpan last = KeySpansOf(chunk, 0, window).back();
        EXPECT_EQ(last.item, 1u);
        EXPECT_EQ(last.position + last.rows - 1, position);
        EXPECT_EQ(last.first_key, one.first_key) << position << " " << window;
        EXPECT_EQ(last.keys, one.keys) << position << " " << window;
      }
      // It sees what it has to.
      EXPECT_LE(one.first_key, one.first_kept);
      EXPECT_GT(one.first_key + one.keys, position);
    }
  }
}

TEST(KeySpansTest, PagesBehindAWindowAreNotLookedAt) {
  const Sequence sequence(4, /*first_page=*/60);
  const std::vector<BatchItem> items = {sequence.Item(0, 1, 1020)};
  const KeySpan span = KeySpansOf(items, 0, 50).at(0);
  EXPECT_EQ(span.first_key, 896u);  // What position 960 sees begins in that page.
  EXPECT_EQ(span.first_kept, 971u);
  EXPECT_EQ(span.keys, 128u);
  EXPECT_THAT(span.pages, ElementsAre(160u, 160u, 160u, 160u, 160u, 161u, 162u, 163u));
}

class AttentionShapesTest : public ::testing::Test {
 protected:
  // Of a sequence's rows [position, position + rows).
  static KeySpan SpanOf(uint32_t rows, uint32_t position) {
    const Sequence sequence(40);
    const std::vector<BatchItem> items = {sequence.Item(0, rows, position)};
    return KeySpansOf(items, 0, 0).at(0);
  }
};

TEST_F(AttentionShapesTest, ThoseOfTheSpanAreTaken) {
  const KeySpan span = SpanOf(39, 512);
  const absl::Status status = CheckAttentionShapes(
      span, 0, 39, {{1, 8, 39, 64}, {1, 2, 576, 64}, {1, 2, 576, 64}, {1, 1, 39, 576}});
  EXPECT_TRUE(status.ok()) << status;
}

// A mask of another request's 39 tokens, which MLX would refuse by two shapes alone.
TEST_F(AttentionShapesTest, AMaskOfAnotherLengthNamesPositionAndLength) {
  const KeySpan span = SpanOf(39, 512);
  const absl::Status status = CheckAttentionShapes(
      span, 0, 39, {{1, 32, 39, 128}, {1, 8, 576, 128}, {1, 8, 576, 128}, {1, 1, 39, 39}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(status), "ATTENTION_SHAPE");
  EXPECT_THAT(status.message(), HasSubstr("39 rows at position 512 of a sequence of length 551"));
  EXPECT_THAT(status.message(), HasSubstr("mask (1,1,39,39)"));
}

// Dimensions that MLX would broadcast, and compute something else.
TEST_F(AttentionShapesTest, WhatWouldBeBroadcastIsRefused) {
  const KeySpan span = SpanOf(4, 10);
  const AttentionShapes right = {{1, 8, 4, 64}, {1, 2, 32, 64}, {1, 2, 32, 64}, {1, 1, 4, 32}};
  ASSERT_TRUE(CheckAttentionShapes(span, 0, 4, right).ok());
  const auto expect = [&](auto edit) {
    AttentionShapes shapes = right;
    edit(shapes);
    EXPECT_EQ(ReasonOf(CheckAttentionShapes(span, 0, 4, shapes)), "ATTENTION_SHAPE");
  };
  expect([](AttentionShapes& s) { s.mask[2] = 1; });
  expect([](AttentionShapes& s) { s.mask[3] = 1; });
  expect([](AttentionShapes& s) { s.mask.erase(s.mask.begin()); });
  expect([](AttentionShapes& s) { s.queries[0] = 2; });
  expect([](AttentionShapes& s) { s.queries[2] = 1; });
  expect([](AttentionShapes& s) { s.keys[1] = 3; });
  expect([](AttentionShapes& s) { s.keys[2] = 39; });
  expect([](AttentionShapes& s) { s.keys[3] = 16; });
  expect([](AttentionShapes& s) { s.values[1] = 1; });
  expect([](AttentionShapes& s) { s.values[2] = 1; });
  EXPECT_EQ(ReasonOf(CheckAttentionShapes(span, 1, 4, right)), "ATTENTION_SHAPE");
  EXPECT_EQ(ReasonOf(CheckAttentionShapes(span, 0, 0, right)), "ATTENTION_SHAPE");
}

}  // namespace
}  // namespace strata::mlx
