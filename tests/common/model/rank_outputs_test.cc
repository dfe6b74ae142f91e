#include "common/model/rank_outputs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "common/status.h"

namespace strata {
namespace {

ModelSpec Model(uint32_t heads, uint32_t kv_heads, uint32_t hidden, uint32_t ffn, uint32_t vocab) {
  ModelSpec model;
  model.hidden = hidden;
  model.vocab = vocab;
  LayerSpec layer;
  layer.attention.heads = heads;
  layer.attention.kv_heads = kv_heads;
  layer.mlp.ffn = ffn;
  layer.mlp.shared_ffn = ffn / 2;
  model.layers = {layer, layer};
  return model;
}

std::vector<RankOutputs> Split(const ModelSpec& model, const std::vector<double>& weights) {
  const auto shares = SharesByWeight(weights);
  EXPECT_TRUE(shares.ok()) << shares.status();
  return SplitOutputs(model, *shares);
}

// [0, count) by ranks, one behind another, each beginning on a multiple of `unit`.
void ExpectEachOnce(const std::vector<OutputRange>& ranges, uint32_t count, uint32_t unit) {
  uint32_t next = 0;
  for (const OutputRange& range : ranges) {
    EXPECT_EQ(range.begin, next);
    EXPECT_LE(range.begin, range.end);
    EXPECT_TRUE(range.end % unit == 0 || range.end == count) << range.end;
    next = range.end;
  }
  EXPECT_EQ(next, count);
}

std::vector<OutputRange> OfAll(const std::vector<RankOutputs>& ranks,
                               const std::function<OutputRange(const RankOutputs&)>& of) {
  std::vector<OutputRange> ranges;
  for (const RankOutputs& rank : ranks) {
    ranges.push_back(of(rank));
  }
  return ranges;
}

TEST(RankOutputsTest, EveryOutputIsOneRanksInWholePanelsAndHeadsWhateverTheShares) {
  std::mt19937 random(1);
  const auto drawn = [&](uint32_t most) {
    return std::uniform_int_distribution<uint32_t>(1, most)(random);
  };
  for (int i = 0; i < 2000; ++i) {
    const uint32_t kv_heads = drawn(9);
    const uint32_t group = drawn(9);
    const ModelSpec model = Model(kv_heads * group, kv_heads, drawn(300), drawn(1000), drawn(2000));
    std::vector<double> weights(drawn(kMostRanks));
    const double spread = i % 10 == 0 ? 30 : 2;
    for (double& weight : weights) {
      weight = std::exp(std::uniform_real_distribution<double>(-spread, spread)(random));
    }
    const std::vector<RankOutputs> ranks = Split(model, weights);
    ASSERT_EQ(ranks.size(), weights.size());
    ExpectEachOnce(OfAll(ranks, [](const auto& r) { return r.hidden; }), model.hidden, 16);
    ExpectEachOnce(OfAll(ranks, [](const auto& r) { return r.vocab; }), model.vocab, 16);
    const MlpSpec& mlp = model.layers[1].mlp;
    ExpectEachOnce(OfAll(ranks, [](const auto& r) { return r.layers[1].ffn; }), mlp.ffn, 16);
    ExpectEachOnce(OfAll(ranks, [](const auto& r) { return r.layers[1].shared_ffn; }),
                   mlp.shared_ffn, 16);
    ExpectEachOnce(OfAll(ranks, [](const auto& r) { return r.layers[1].heads; }), kv_heads * group,
                   1);
    for (const RankOutputs& rank : ranks) {
      const auto& [heads, kv, ffn, shared] = rank.layers[1];
      if (heads.empty()) {
        EXPECT_TRUE(kv.empty());
        continue;
      }
      // The KV heads are those that its heads see, and each is seen by as many.
      EXPECT_EQ(kv.begin, heads.begin / group);
      EXPECT_EQ(kv.end, (heads.end - 1) / group + 1);
      EXPECT_EQ(heads.size() % kv.size(), 0u);
      EXPECT_TRUE(kv.size() == 1 || heads.size() == kv.size() * group);
      // More than one rank has it only where there are fewer than ranks.
      if (kv_heads >= ranks.size()) {
        EXPECT_EQ(heads.size(), kv.size() * group);
      } else {
        EXPECT_EQ(kv.size(), 1u);
      }
    }
    const ModelSpec of_last = WithHeadsOf(ranks.back(), model);
    EXPECT_EQ(of_last.layers[0].attention.heads, ranks.back().layers[0].heads.size());
    EXPECT_EQ(of_last.layers[0].attention.kv_heads, ranks.back().layers[0].kv_heads.size());
    EXPECT_EQ(of_last.layers[0].mlp.ffn, mlp.ffn);
  }
}

TEST(RankOutputsTest, OneRankHasEverything) {
  const std::vector<RankOutputs> ranks = Split(Model(6, 2, 40, 50, 37), {3});
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].hidden, (OutputRange{0, 40}));
  EXPECT_EQ(ranks[0].vocab, (OutputRange{0, 37}));
  EXPECT_EQ(ranks[0].layers[0].heads, (OutputRange{0, 6}));
  EXPECT_EQ(ranks[0].layers[0].kv_heads, (OutputRange{0, 2}));
  EXPECT_EQ(ranks[0].layers[0].ffn, (OutputRange{0, 50}));
}

TEST(RankOutputsTest, SharesFollowTheWeights) {
  const std::vector<RankOutputs> ranks = Split(Model(32, 8, 4096, 14336, 128256), {2, 1, 1});
  EXPECT_EQ(ranks[0].hidden, (OutputRange{0, 2048}));
  EXPECT_EQ(ranks[1].hidden, (OutputRange{2048, 3072}));
  EXPECT_EQ(ranks[2].hidden, (OutputRange{3072, 4096}));
  EXPECT_EQ(ranks[0].layers[0].kv_heads, (OutputRange{0, 4}));
  EXPECT_EQ(ranks[1].layers[0].kv_heads, (OutputRange{4, 6}));
  EXPECT_EQ(ranks[2].layers[0].heads, (OutputRange{24, 32}));
  EXPECT_EQ(ranks[0].layers[0].ffn, (OutputRange{0, 7168}));
}

TEST(RankOutputsTest, RanksBeyondTheKvHeadsDivideTheQueryHeadsOfOne) {
  const std::vector<RankOutputs> ranks = Split(Model(16, 2, 64, 64, 64), {2, 1, 1});
  EXPECT_EQ(ranks[0].layers[0].kv_heads, (OutputRange{0, 1}));
  EXPECT_EQ(ranks[0].layers[0].heads, (OutputRange{0, 8}));
  EXPECT_EQ(ranks[1].layers[0].kv_heads, (OutputRange{1, 2}));
  EXPECT_EQ(ranks[1].layers[0].heads, (OutputRange{8, 12}));
  EXPECT_EQ(ranks[2].layers[0].kv_heads, (OutputRange{1, 2}));
  EXPECT_EQ(ranks[2].layers[0].heads, (OutputRange{12, 16}));
}

TEST(RankOutputsTest, SharesThatAreNoneAreRefused) {
  for (const std::vector<double>& weights :
       {std::vector<double>{}, std::vector<double>(9, 1.0), std::vector<double>{1, 0},
        std::vector<double>{1, -1}, std::vector<double>{1, NAN}, std::vector<double>{1, INFINITY},
        std::vector<double>{1e308, 1e308}}) {
    const auto shares = SharesByWeight(weights);
    EXPECT_EQ(shares.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(shares.status()), "RANKS_INVALID");
  }
}

}  // namespace
}  // namespace strata
