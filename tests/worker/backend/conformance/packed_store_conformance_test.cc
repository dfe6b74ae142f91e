// A load that reads what an earlier one packed gives the same bits, without the tensors' bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/worker/backend/conformance/conforming_backends.h"
#include "tests/worker/backend/models/memory_store.h"

namespace strata::testing {
namespace {

class PackedStoreConformance : public BackendConformance {
 protected:
  // Of some ids; empty where the backend refuses the model by a typed error.
  std::vector<float> Logits(const ModelSpec& spec, const TensorSource& weights,
                            const ForwardOptions& options) {
    auto forward = ForwardModel::Load(backend_.get(), spec, weights, options);
    if (!forward.ok()) {
      EXPECT_TRUE(IsRefusal(forward.status()));
      return {};
    }
    auto rows = (*forward)->Run(std::vector<uint32_t>{1, 5, 9, 2, 30, 7, 7, 11});
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? LogitsOf(*rows) : std::vector<float>();
  }
  void ExpectTheSameBitsFromTheStore(const ModelSpec& spec, const TensorSource& source,
                                     ForwardOptions options);
};

void PackedStoreConformance::ExpectTheSameBitsFromTheStore(const ModelSpec& spec,
                                                           const TensorSource& source,
                                                           ForwardOptions options) {
  options.context = 256;
  options.kv_tokens = 512;
  const std::vector<float> expected = Logits(spec, source, options);
  if (expected.empty()) {
    return;  // Refused.
  }
  MemoryStore store;
  options.packed = &store;
  const DigestedTensors first(source);
  EXPECT_EQ(Logits(spec, first, options), expected);
  EXPECT_FALSE(first.matrices.empty());
  EXPECT_TRUE(first.prepared().empty()) << "not all was released";
  const int writes = store.writes;
  EXPECT_GT(writes, 0);

  const DigestedTensors second(source);
  EXPECT_EQ(Logits(spec, second, options), expected);
  EXPECT_THAT(second.matrices, ::testing::IsEmpty());
  EXPECT_TRUE(second.prepared().empty());
  EXPECT_EQ(store.writes, writes);
}

TEST_P(PackedStoreConformance, EveryFormatGivesTheSameBitsFromTheStoreWithoutItsMatrices) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
    for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
      for (const bool tied : {false, true}) {
        SCOPED_TRACE(std::string(DtypeName(dtype)) + " " + v1::Quantize_Name(quantize) +
                     (tied ? " tied" : ""));
        const MadeUpModel model({.tied = tied, .biases = true, .dtype = dtype});
        ForwardOptions options;
        options.quantize = quantize;
        options.activations =
            quantize == v1::QUANTIZE_NONE ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8;
        options.cuts = {1};
        ExpectTheSameBitsFromTheStore(model.spec(), model, options);
      }
    }
  }
}

TEST_P(PackedStoreConformance, CheckpointsOfOtherFormatsGiveTheSameBitsFromTheStore) {
  for (const char* name :
       {"llama31-mlx4", "llama31-mlx8", "gguf/llama-f16", "gguf/llama-q8_0", "gguf/llama-q4_0",
        "gguf/phi3-q4_0", "gguf/qwen3-moe-q8_0", "gguf/gpt-oss-mxfp4", "mixtral-mlx4-mixed",
        "gpt-oss", "gpt-oss-mxfp4", "mixtral-awq", "qwen3-moe-gptq8", "mixtral-gptq4-actorder",
        "deepseek-v2-packed4"}) {
    SCOPED_TRACE(name);
    const GoldenModel model = LoadGoldenModel(name);
    ExpectTheSameBitsFromTheStore(model.spec, model.weights, {});
  }
}

// Of a square part, which is packed as it is and transposed, both are kept.
TEST_P(PackedStoreConformance, HeadsOfLatentLayersAreKeptEachByItself) {
  for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
    const MadeUpModel model(
        {.latent = {.rank = 16, .query_rank = 12, .nope_dim = 16, .rope_dim = 4, .value_dim = 16}});
    ForwardOptions options;
    options.quantize = quantize;
    options.activations =
        quantize == v1::QUANTIZE_NONE ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8;
    ExpectTheSameBitsFromTheStore(model.spec(), model, options);
  }
}

TEST_P(PackedStoreConformance, PartsOfOneTensorAreKeptEachByItself) {
  const GoldenModel model = LoadGoldenModel("phi3");
  for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8}) {
    ForwardOptions options;
    options.quantize = quantize;
    options.activations =
        quantize == v1::QUANTIZE_NONE ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8;
    ExpectTheSameBitsFromTheStore(model.spec, model.weights, options);
  }
}

TEST_P(PackedStoreConformance, ExpertsGiveTheSameBitsFromTheStore) {
  const MadeUpModel model({.layers = 3, .experts = 6, .router = {.used = 2}});
  for (const v1::Quantize quantize : {v1::QUANTIZE_NONE, v1::QUANTIZE_INT8, v1::QUANTIZE_INT4}) {
    ForwardOptions options;
    options.quantize = quantize;
    options.activations =
        quantize == v1::QUANTIZE_NONE ? v1::ACTIVATIONS_F32 : v1::ACTIVATIONS_INT8;
    ExpectTheSameBitsFromTheStore(model.spec(), model, options);
  }
}

TEST_P(PackedStoreConformance, TensorsOfUnknownContentAreNotKept) {
  const MadeUpModel model({});
  MemoryStore store;
  ForwardOptions options;
  options.context = 256;
  options.packed = &store;
  EXPECT_FALSE(Logits(model.spec(), model, options).empty());
  EXPECT_TRUE(store.files.empty());
}

INSTANTIATE_TEST_SUITE_P(Backends, PackedStoreConformance,
                         ::testing::ValuesIn(ConformingBackends()), KindName);

}  // namespace
}  // namespace strata::testing
