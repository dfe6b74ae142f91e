// Which experts a row gets, what they count, and how rows are arranged by expert.
#include "worker/backend/cpu/shard/router.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "common/numerics/math.h"
#include "worker/backend/cpu/shard/expert_rows.h"

namespace strata::cpu {
namespace {

using ::testing::ElementsAre;

std::vector<Chosen> Choose(const RouterSpec& spec, const std::vector<float>& logits) {
  std::vector<Chosen> chosen(spec.used);
  ChooseExperts(spec, logits, chosen);
  return chosen;
}

std::vector<uint32_t> Ids(const std::vector<Chosen>& chosen) {
  std::vector<uint32_t> ids;
  for (const Chosen& one : chosen) {
    ids.push_back(one.expert);
  }
  return ids;
}

TEST(RouterTest, TakesTheLargestInTheOrderOfTheirIds) {
  EXPECT_THAT(Ids(Choose({.used = 3}, {0.5f, 2, -1, 3, 2.5f, 0})), ElementsAre(1, 3, 4));
  EXPECT_THAT(Ids(Choose({.used = 1}, {-5, -4, -6})), ElementsAre(1));
  EXPECT_THAT(Ids(Choose({.used = 2}, {7, 8})), ElementsAre(0, 1));
}

TEST(RouterTest, OfEqualOnesTakesTheLowestIds) {
  EXPECT_THAT(Ids(Choose({.used = 2}, {1, 2, 2, 2})), ElementsAre(1, 2));
  EXPECT_THAT(Ids(Choose({.used = 2}, {2, 1, 3, 2})), ElementsAre(0, 2));
  EXPECT_THAT(Ids(Choose({.used = 3}, {0, 0, 0, 0, 0})), ElementsAre(0, 1, 2));
  EXPECT_THAT(Ids(Choose({.used = 2}, {0.0f, -0.0f, 0.0f})), ElementsAre(0, 1));
}

TEST(RouterTest, WeightsAreTheSoftmaxOverAllExperts) {
  const std::vector<Chosen> chosen = Choose({.used = 2}, {1, 3, -2, 2});
  const float sum = ((ExpF32(-2) + ExpF32(0)) + ExpF32(-5)) + ExpF32(-1);
  EXPECT_EQ(chosen[0].weight, ExpF32(0) / sum);
  EXPECT_EQ(chosen[1].weight, ExpF32(-1) / sum);
}

TEST(RouterTest, RenormalizedWeightsAddUpToOne) {
  const std::vector<float> logits = {1, 3, -2, 2};
  const std::vector<Chosen> plain = Choose({.used = 2}, logits);
  const std::vector<Chosen> chosen = Choose({.used = 2, .renormalize = true}, logits);
  EXPECT_EQ(chosen[0].weight, plain[0].weight / (plain[0].weight + plain[1].weight));
  EXPECT_NEAR(chosen[0].weight + chosen[1].weight, 1, 1e-6);
}

TEST(RouterTest, AFamilyMayTakeTheSoftmaxOfThoseChosen) {
  const std::vector<Chosen> chosen =
      Choose({.used = 2, .scores = RouterScores::kSoftmaxOfChosen}, {1, 3, -2, 2});
  const float sum = ExpF32(0) + ExpF32(-1);
  EXPECT_EQ(chosen[0].weight, ExpF32(0) / sum);
  EXPECT_EQ(chosen[1].weight, ExpF32(-1) / sum);
}

TEST(RouterTest, WhatIsNoNumberMakesNothingFinite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const RouterScores scores : {RouterScores::kSoftmax, RouterScores::kSoftmaxOfChosen}) {
    for (const std::vector<float>& logits :
         {std::vector<float>{1, 2, kNan, 3}, std::vector<float>{kNan, 2, 1, 3},
          std::vector<float>{kNan, kNan, kNan, kNan}}) {
      const std::vector<Chosen> chosen = Choose({.used = 2, .scores = scores}, logits);
      ASSERT_LT(chosen[0].expert, chosen[1].expert);
      ASSERT_LT(chosen[1].expert, 4u);
      EXPECT_TRUE(std::isnan(chosen[0].weight) && std::isnan(chosen[1].weight));
    }
  }
}

TEST(ExpertRowsTest, RowsOfAnExpertFollowEachOtherInTheirOrder) {
  ExpertRows rows;
  rows.Reserve(8, 2, 5);
  const std::vector<std::vector<uint32_t>> experts = {{1, 4}, {0, 4}, {1, 2}, {1, 4}, {1, 4}};
  rows.Begin(5, 2);
  for (uint32_t row = 0; row < 5; ++row) {
    rows.Choice(row)[0].expert = experts[row][0];
    rows.Choice(row)[1].expert = experts[row][1];
  }
  rows.Arrange(5, {.alone = 2, .most = 2});
  std::vector<uint32_t> ids;
  std::set<uint32_t> places;
  for (const ExpertRows::Group& group : rows.groups()) {
    ids.push_back(group.expert);
    uint32_t before = 0;
    for (uint32_t place = group.first; place < group.first + group.count; ++place) {
      const uint32_t row = rows.RowAt(place);
      EXPECT_TRUE(place == group.first || row > before);
      before = row;
      const size_t which = experts[row][0] == group.expert ? 0 : 1;
      EXPECT_EQ(experts[row][which], group.expert);
      EXPECT_EQ(rows.Places(row)[which], place);
      places.insert(place);
    }
  }
  EXPECT_THAT(ids, ElementsAre(0, 1, 2, 4));
  EXPECT_EQ(places.size(), 10u);
  EXPECT_EQ(*places.rbegin(), 9u);
  // Blocks cut each group as RowBlocks does.
  std::vector<std::pair<uint32_t, uint32_t>> blocks;
  uint32_t next = 0;
  for (const ExpertRows::Block& block : rows.blocks()) {
    EXPECT_EQ(block.rows.first, next);
    next += block.rows.count;
    blocks.push_back({block.expert, block.rows.count});
  }
  EXPECT_THAT(blocks, ElementsAre(std::pair(0u, 1u), std::pair(1u, 2u), std::pair(1u, 2u),
                                  std::pair(2u, 1u), std::pair(4u, 2u), std::pair(4u, 2u)));
}

}  // namespace
}  // namespace strata::cpu
