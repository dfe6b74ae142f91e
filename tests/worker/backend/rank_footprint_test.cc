// What the ranks of a stage take is what their footprints say.
#include "common/footprint/rank_footprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "tests/worker/backend/models/made_up_stage.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace strata::testing {
namespace {

struct Said {
  uint64_t weights = 0;
  uint64_t kv = 0;
  uint64_t buffers = 0;
};

// By the footprints of all ranks.
Said SaidOf(const MadeUpModel& model, const StageSpec& stage, const std::vector<double>& weights) {
  const auto shares = SharesByWeight(weights);
  EXPECT_TRUE(shares.ok()) << shares.status();
  Said said;
  const std::vector<RankOutputs> ranks = SplitOutputs(model.spec(), *shares);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankFootprint footprint(CpuFootprint(), model.spec(),
                                  {ranks[rank], rank == 0, stage.embeds, stage.heads});
    for (const StageTensor& tensor :
         TensorsOf(model.spec(), stage.first_layer, stage.last_layer, stage.embeds, stage.heads)) {
      const auto stored = model.Find(tensor.name);
      EXPECT_TRUE(stored.ok()) << stored.status();
      const bool in_layer = tensor.name.find("model.layers.") != std::string::npos;
      said.weights += footprint.WeightBytes(tensor, stored->dtype, stored->bytes,
                                            QuantizeOf(stage.quantize, in_layer));
    }
    for (uint32_t group = 0; group < stage.kv_pages.size(); ++group) {
      said.kv +=
          stage.kv_pages[group] * footprint.PageBytes(model.spec(), stage.first_layer,
                                                      stage.last_layer, group, stage.kv_dtype);
    }
    said.buffers +=
        footprint.BufferBytes(model.spec(), stage.max_batch_tokens, stage.heads, stage.context);
  }
  return said;
}

TEST(RankFootprintTest, RanksTakeWhatIsSaid) {
  const MadeUpShape dense = {.layers = 3,
                             .hidden = 256,
                             .heads = 8,
                             .kv_heads = 2,
                             .head_dim = 32,
                             .rotary_dim = 32,
                             .ffn = 512,
                             .vocab = 512};
  MadeUpShape tied = dense;
  tied.tied = true;
  MadeUpShape experts = dense;
  experts.experts = 4;
  experts.router = {.used = 2};
  MadeUpShape latent = dense;
  latent.latent = {.rank = 64, .query_rank = 96, .nope_dim = 32, .rope_dim = 16, .value_dim = 32};
  for (const MadeUpShape& shape : {dense, tied, experts, latent}) {
    const MadeUpModel model(shape);
    for (const std::vector<double>& weights :
         {std::vector<double>{1}, {1, 1}, {2, 1, 1}, {1, 1, 1, 1}}) {
      SCOPED_TRACE(::testing::Message()
                   << weights.size() << " ranks, tied " << shape.tied << ", experts "
                   << shape.experts << ", latent " << shape.latent.rank);
      CpuOptions options;
      for (const double share : weights) {
        options.ranks.push_back({.share = share});
      }
      auto backend = MakeCpuBackend(options);
      ASSERT_TRUE(backend.ok()) << backend.status();
      // Of the layers [0, last], without KV.
      const auto taken = [&](uint32_t last, bool ends, Said* said) {
        MadeUpStage stage = WholeModel(model);
        stage.spec.last_layer = last;
        stage.spec.embeds = ends;
        stage.spec.heads = ends;
        *said = SaidOf(model, stage.spec, weights);
        const auto shard = (*backend)->Load(stage.spec, model, nullptr, nullptr);
        EXPECT_TRUE(shard.ok()) << shard.status();
        const uint64_t with_kv = (*shard)->MemoryBytes();
        EXPECT_TRUE((*shard)->ResizeKv(std::vector<uint64_t>(stage.spec.kv_pages.size())).ok());
        const uint64_t without = (*shard)->MemoryBytes();
        EXPECT_NEAR(static_cast<double>(with_kv - without), static_cast<double>(said->kv),
                    64.0 * static_cast<double>(weights.size()));
        EXPECT_GE(without, said->weights - said->weights / 100);
        EXPECT_LE(without, said->weights + said->weights / 50 + said->buffers);
        return static_cast<double>(without);
      };
      Said two, three, whole;
      const double with_two = taken(1, false, &two);
      const double with_three = taken(2, false, &three);
      const double with_ends = taken(2, true, &whole);
      // Numbers that are no matrices' are kept as another kind of float.
      const auto layer = static_cast<double>(three.weights - two.weights);
      EXPECT_NEAR(with_three - with_two, layer, layer / 50);
      const auto ends = static_cast<double>(whole.weights - three.weights);
      EXPECT_NEAR(with_ends - with_three, ends, ends / 50);
    }
  }
}

// What is gathered goes by way of buffers where ranks are of several workers.
TEST(RankFootprintTest, ARankOfSeveralWorkersTakesWhatIsOnItsWayBesides) {
  for (const uint32_t vocab : {64u, 4096u}) {
    const MadeUpModel model({.hidden = 256,
                             .heads = 8,
                             .kv_heads = 8,
                             .head_dim = 32,
                             .rotary_dim = 32,
                             .ffn = 512,
                             .vocab = vocab});
    const MadeUpStage stage = WholeModel(model);
    const uint64_t rows = stage.spec.max_batch_tokens;
    const uint64_t on_its_way = rows * std::max(512u, vocab) * sizeof(float);
    const std::vector<double> weights = {1, 1};
    RankPlace place;
    place.shares = SharesByWeight(weights).value();
    uint64_t apart = 0;
    for (place.rank = 0; place.rank < 2; ++place.rank) {
      const auto backend = MakeCpuBackend({.threads = 1});
      ASSERT_TRUE(backend.ok()) << backend.status();
      const auto rank = (*backend)->LoadRank(stage.spec, place, model, nullptr, nullptr);
      ASSERT_TRUE(rank.ok()) << rank.status();
      apart += (*rank)->MemoryBytes();
    }
    const auto backend = MakeCpuBackend({.ranks = {{}, {}}});
    ASSERT_TRUE(backend.ok()) << backend.status();
    const auto together = (*backend)->Load(stage.spec, model, nullptr, nullptr);
    ASSERT_TRUE(together.ok()) << together.status();
    EXPECT_EQ(apart, (*together)->MemoryBytes() + 2 * on_its_way);
    const Said said = SaidOf(model, stage.spec, weights);
    EXPECT_EQ(said.buffers, 2 * (CpuFootprint().BufferBytes(model.spec(), rows, stage.spec.heads,
                                                            stage.spec.context) +
                                 on_its_way));
  }
}

TEST(RankFootprintTest, ARankOfManyTakesLittleMoreThanItsShareOfWeights) {
  const MadeUpModel model({.hidden = 256,
                           .heads = 8,
                           .kv_heads = 8,
                           .head_dim = 32,
                           .rotary_dim = 32,
                           .ffn = 512,
                           .vocab = 512});
  const MadeUpStage stage = WholeModel(model);
  const Said one = SaidOf(model, stage.spec, {1});
  const Said four = SaidOf(model, stage.spec, {1, 1, 1, 1});
  EXPECT_EQ(four.kv, one.kv);
  // Norms, of every rank.
  const uint64_t norms = (2 * 2 + 1) * 256 * 2;
  EXPECT_LE(four.weights, one.weights + 3 * norms + 64);
  EXPECT_GT(four.weights, one.weights);
}

}  // namespace
}  // namespace strata::testing
