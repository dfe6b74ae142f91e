// A stage takes of memory what its footprint says, by which the planner places layers and workers
// admit them; and where there is not as much, it is refused by a typed error.
#include <gtest/gtest.h>

#include <limits>

#include "common/checkpoint/checkpoint.h"
#include "common/limits.h"
#include "common/status.h"
#include "tests/worker/backend/conformance/conforming_backends.h"
#include "tests/worker/backend/models/block_model.h"

namespace strata::testing {
namespace {

class FootprintConformance : public BackendConformance {
 protected:
  const Footprint& footprint() const { return *GetParam().footprint; }

  void SetUp() override {
    if (GetParam().footprint == nullptr) {
      GTEST_SKIP() << "what a rank takes is tested in rank_footprint_test.cc";
    }
    BackendConformance::SetUp();
  }

  // Of the layers [0, last], and without embedding and head.
  MadeUpStage StageOf(const ModelSpec& model, uint32_t last, v1::Quantize quantize,
                      v1::Activations activations) const {
    MadeUpStage stage;
    stage.spec.model = model;
    stage.spec.last_layer = last;
    stage.spec.context = 256;
    stage.spec.kv_pages.assign(model.kv_groups.size(), 64);
    stage.spec.max_batch_tokens = 32;
    stage.spec.max_batch_items = 4;
    stage.spec.quantize = quantize;
    stage.spec.activations = activations;
    stage.rotary = MakeRotaryTables(model, stage.spec.context);
    stage.spec.rotary = stage.rotary;
    return stage;
  }

  uint64_t WeightsOf(const StageSpec& spec, const TensorSource& weights) const {
    uint64_t bytes = 0;
    for (const StageTensor& tensor :
         TensorsOf(spec.model, spec.first_layer, spec.last_layer, spec.embeds, spec.heads)) {
      const auto stored = weights.Find(tensor.name);
      EXPECT_TRUE(stored.ok()) << stored.status();
      bytes += footprint().WeightBytes(tensor, stored->dtype, stored->bytes,
                                       QuantizeOf(spec.quantize, true));
    }
    return bytes;
  }

  uint64_t KvOf(const StageSpec& spec) const {
    uint64_t bytes = 0;
    for (uint32_t group = 0; group < spec.kv_pages.size(); ++group) {
      bytes += spec.kv_pages[group] * footprint().PageBytes(spec.model, spec.first_layer,
                                                            spec.last_layer, group, spec.kv_dtype);
    }
    return bytes;
  }

  // 0: the backend refuses the stage.
  uint64_t TakenBy(const StageSpec& spec, const TensorSource& weights) {
    const auto shard = backend_->Load(spec, weights, nullptr, nullptr);
    if (!shard.ok()) {
      EXPECT_TRUE(IsRefusal(shard.status()));
      return 0;
    }
    return (*shard)->MemoryBytes();
  }

  // What the second of two layers takes beside the first is what is said of it, but for a
  // hundredth: numbers that are no matrices' may be kept as another kind of float.
  void ExpectALayerTakesWhatIsSaid(const ModelSpec& model, const TensorSource& weights,
                                   v1::Quantize quantize, v1::Activations activations) {
    const MadeUpStage one = StageOf(model, 0, quantize, activations);
    const MadeUpStage two = StageOf(model, 1, quantize, activations);
    const uint64_t with_one = TakenBy(one.spec, weights);
    if (with_one == 0) {
      return;  // Refused.
    }
    const uint64_t with_two = TakenBy(two.spec, weights);
    const uint64_t said_of_one = WeightsOf(one.spec, weights) + KvOf(one.spec);
    const uint64_t said_of_two = WeightsOf(two.spec, weights) + KvOf(two.spec);
    const auto said = static_cast<double>(said_of_two - said_of_one);
    EXPECT_NEAR(static_cast<double>(with_two - with_one), said, said / 100);
    EXPECT_GE(with_two, said_of_two - said_of_two / 100);
    EXPECT_LE(with_two, said_of_two + footprint().BufferBytes(model, two.spec.max_batch_tokens,
                                                              false, two.spec.context));
  }
};

TEST_P(FootprintConformance, ALayerOfFloatsTakesWhatIsSaid) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
    const MadeUpModel model({.hidden = 256,
                             .heads = 8,
                             .kv_heads = 2,
                             .head_dim = 32,
                             .rotary_dim = 32,
                             .ffn = 512,
                             .dtype = dtype});
    for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
      SCOPED_TRACE(std::string(DtypeName(dtype)) + " " + v1::Quantize_Name(quantize));
      ExpectALayerTakesWhatIsSaid(
          model.spec(), model, quantize,
          quantize == v1::QUANTIZE_NONE ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8);
    }
  }
}

TEST_P(FootprintConformance, ALayerOfBlocksTakesWhatIsSaid) {
  for (const BlockCase& one : BlockCases()) {
    SCOPED_TRACE(DtypeName(one.dtype));
    const BlockModel model(one, false, false);
    ExpectALayerTakesWhatIsSaid(model.spec(), model, v1::QUANTIZE_NONE, v1::ACTIVATIONS_INT8);
  }
}

TEST_P(FootprintConformance, PagesTakeWhatIsSaid) {
  const MadeUpShape dense = {.head_dim = 32, .rotary_dim = 32};
  const MadeUpShape latent = {
      .latent = {.rank = 16, .nope_dim = 10, .rope_dim = 8, .value_dim = 9}};
  const MadeUpShape windows = {.layers = 4, .head_dim = 32, .rotary_dim = 32, .windows = {20, 0}};
  for (const MadeUpShape& shape : {dense, latent, windows}) {
    const MadeUpModel model(shape);
    for (const v1::KvDtype kv : {v1::KV_DTYPE_F16, v1::KV_DTYPE_F32}) {
      MadeUpStage stage = WholeModel(model);
      stage.spec.kv_dtype = kv;
      stage.spec.kv_pages.assign(model.spec().kv_groups.size(), 64);
      const std::unique_ptr<Shard> shard = LoadOrRefuse(model, stage);
      if (shard == nullptr) {
        continue;
      }
      for (uint32_t group = 0; group < stage.spec.kv_pages.size(); ++group) {
        std::vector<uint64_t> pages = stage.spec.kv_pages;
        ASSERT_TRUE(shard->ResizeKv(pages).ok());
        const uint64_t before = shard->MemoryBytes();
        pages[group] += 64;
        ASSERT_TRUE(shard->ResizeKv(pages).ok());
        EXPECT_EQ(shard->MemoryBytes() - before,
                  64 * footprint().PageBytes(model.spec(), 0, stage.spec.last_layer, group, kv));
      }
    }
  }
}

// What a page of latent vectors takes is what the planner counts.
TEST_P(FootprintConformance, PagesOfLatentVectorsHoldThemAndTheRotatedKeyOnce) {
  const MadeUpModel model({.latent = {.rank = 16, .nope_dim = 10, .rope_dim = 8, .value_dim = 9}});
  EXPECT_EQ(KvBytesPerToken(model.spec(), 0, 1, 0, 2), 2u * (16 + 8) * 2);
  const MadeUpStage stage = WholeModel(model);
  const std::unique_ptr<Shard> shard = LoadOrRefuse(model, stage);
  if (shard == nullptr) {
    GTEST_SKIP() << "refused";
  }
  const auto bytes = [&](uint64_t pages) {
    EXPECT_TRUE(shard->ResizeKv(std::vector<uint64_t>{pages}).ok());
    return shard->MemoryBytes();
  };
  EXPECT_EQ(bytes(128) - bytes(64), 64u * 16 * KvBytesPerToken(model.spec(), 0, 1, 0, 2));
}

TEST_P(FootprintConformance, MemoryThatIsNotThereIsRefusedAtLoad) {
  const MadeUpModel model({});
  MadeUpStage stage = WholeModel(model);
  stage.spec.kv_pages = {std::numeric_limits<uint32_t>::max()};
  const auto shard = backend_->Load(stage.spec, model, nullptr, nullptr);
  EXPECT_EQ(shard.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(shard.status()), "MEMORY_EXHAUSTED");
}

INSTANTIATE_TEST_SUITE_P(Backends, FootprintConformance, ::testing::ValuesIn(ConformingBackends()),
                         KindName);

}  // namespace
}  // namespace strata::testing
