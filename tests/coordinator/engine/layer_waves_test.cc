#include "coordinator/engine/layer_waves.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

namespace strata {
namespace {

WaveItem Tokens(uint64_t session, uint32_t rows) { return {session, session, 0, rows, 0}; }

TEST(LayerWaves, AWaveGoesThroughEveryStagesSlicesInOrder) {
  LayerWaves waves({5, 3});
  EXPECT_TRUE(waves.may_begin());
  const WaveSlice first = waves.Begin({Tokens(1, 64), Tokens(2, 3)}, 2);
  EXPECT_EQ(first.from_layer, 0u);
  EXPECT_EQ(first.end_layer, 3u);
  EXPECT_EQ(first.items.size(), 2u);
  EXPECT_EQ(waves.rows(), 67u);
  EXPECT_EQ(waves.items(), 2u);
  EXPECT_TRUE(waves.Has(2));
  std::vector<std::pair<uint32_t, uint32_t>> slices;
  while (!waves.empty()) {
    for (const WaveSlice& slice : waves.Next(false)) {
      slices.emplace_back(slice.from_layer, slice.end_layer);
    }
  }
  EXPECT_EQ(slices, (std::vector<std::pair<uint32_t, uint32_t>>{{3, 5}, {5, 7}, {7, 0}}));
}

TEST(LayerWaves, AStageIsNotCutIntoMoreSlicesThanItHasLayers) {
  LayerWaves waves({1, 4});
  EXPECT_EQ(waves.Begin({Tokens(1, 1)}, 8).end_layer, 1u);
  EXPECT_EQ(waves.Next(false).front().end_layer, 2u);
}

TEST(LayerWaves, OneThatIsCutToTheEndAtOnceIsNotUnderWay) {
  LayerWaves waves({4});
  EXPECT_EQ(waves.Begin({Tokens(1, 1)}, 1).end_layer, 0u);
  EXPECT_TRUE(waves.empty());
}

TEST(LayerWaves, WithoutLayersNoneBegins) { EXPECT_FALSE(LayerWaves({}).may_begin()); }

// Waves of several numbers of slices: no stage has two slices in a step, none overtakes another,
// and each layer of each is computed once.
TEST(LayerWaves, EachStageHasOneSliceAStepAndNoneIsOvertaken) {
  std::mt19937 random(1);
  const std::vector<uint32_t> layers = {7, 4, 9};
  LayerWaves waves(layers);
  std::map<uint64_t, uint32_t> reached;  // By session, which are numbered as they begin.
  uint64_t begun = 0;
  for (int step = 0; step < 2000; ++step) {
    const bool may_begin = waves.may_begin();
    std::vector<WaveSlice> slices = waves.Next(false);
    if (may_begin && random() % 2 == 0) {
      slices.push_back(waves.Begin({Tokens(++begun, 1 + random() % 9)}, 1 + random() % 5));
    }
    std::vector<double> shares(layers.size());
    for (const WaveSlice& slice : slices) {
      const uint64_t session = slice.items.at(0).session;
      EXPECT_EQ(reached[session], slice.from_layer);
      reached[session] = slice.end_layer == 0 ? 20 : slice.end_layer;
      EXPECT_TRUE(session == 1 || reached[session] <= reached[session - 1]);
      for (uint32_t stage = 0; stage < layers.size(); ++stage) {
        const double share = waves.ShareOf(slice, stage);
        EXPECT_TRUE(share == 0 || shares[stage] == 0) << "two slices";
        shares[stage] += share;
      }
    }
  }
  EXPECT_GT(begun, 200u);
  while (!waves.empty()) {
    for (const WaveSlice& slice : waves.Next(false)) {
      reached[slice.items.at(0).session] = slice.end_layer == 0 ? 20 : slice.end_layer;
    }
  }
  for (const auto& [session, layer] : reached) {
    EXPECT_EQ(layer, 20u) << session;
  }
}

TEST(LayerWaves, WhatIsLeftIsFinishedAtOnce) {
  LayerWaves waves({4, 4});
  waves.Begin({Tokens(1, 5)}, 2);
  waves.Next(false);
  waves.Begin({Tokens(2, 6)}, 4);
  const std::vector<WaveSlice> slices = waves.Next(true);
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].from_layer, 4u);
  EXPECT_EQ(slices[0].end_layer, 0u);
  EXPECT_EQ(slices[1].from_layer, 1u);
  EXPECT_EQ(slices[1].end_layer, 0u);
  EXPECT_TRUE(waves.empty());
  EXPECT_EQ(waves.ShareOf(slices[1], 0), 0.75);
  EXPECT_EQ(waves.ShareOf(slices[1], 1), 1);
}

TEST(LayerWaves, WhatIsGoneIsForgotten) {
  LayerWaves waves({4, 4});
  waves.Begin({Tokens(1, 5), Tokens(2, 6)}, 2);
  waves.Drop([](const WaveItem& item) { return item.session == 1; });
  EXPECT_EQ(waves.rows(), 6u);
  EXPECT_FALSE(waves.Has(1));
  waves.Drop([](const WaveItem& item) { return item.session == 2; });
  EXPECT_TRUE(waves.empty());
}

}  // namespace
}  // namespace strata
