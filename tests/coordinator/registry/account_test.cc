#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "coordinator/registry/digest_checkpoint.h"
#include "coordinator/registry/manifest.h"
#include "tests/common/checkpoint/made_checkpoint.h"
#include "tests/golden.h"

namespace strata {
namespace {

using testing::TempFolder;

WeightAccount AccountOf(const std::string& path) {
  const auto manifest = DigestCheckpoint(path, nullptr);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  return AccountWeights(*manifest);
}

TEST(AccountWeights, CountsLayersEmbeddingAndHead) {
  const WeightAccount account = AccountOf(testing::GoldenPath("models/llama"));
  ASSERT_EQ(account.layer_bytes.size(), 3);
  // q and o 64x64, k and v 16x64, three matrices 96x64 and two norms, in bfloat16.
  const uint64_t layer = 2 * (2 * 64 * 64 + 2 * 16 * 64 + 3 * 96 * 64 + 2 * 64);
  EXPECT_EQ(account.layer_bytes[1], layer);
  EXPECT_EQ(account.embed_bytes, 2 * 259 * 64);
  EXPECT_EQ(account.head_bytes, 2 * (259 * 64 + 64));
  EXPECT_EQ(account.total_bytes, 3 * layer + account.embed_bytes + account.head_bytes);
  EXPECT_EQ(account.layer_format, "bf16");
  EXPECT_EQ(account.head_format, "bf16");
}

TEST(AccountWeights, CountsATiedEmbeddingOnBothEndsButOnceInAll) {
  const WeightAccount account = AccountOf(testing::GoldenPath("models/llama31"));
  const uint64_t layers =
      std::accumulate(account.layer_bytes.begin(), account.layer_bytes.end(), uint64_t{0});
  EXPECT_EQ(account.embed_bytes, 2 * 260 * 64);
  EXPECT_EQ(account.head_bytes, 2 * (260 * 64 + 64));
  EXPECT_EQ(account.total_bytes, layers + account.head_bytes);
}

TEST(AccountWeights, CountsWhatWorkersQuantizeAndWhatIsStoredSo) {
  const auto manifest = DigestCheckpoint(testing::GoldenPath("models/llama"), nullptr);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const WeightAccount int8 = AccountWeights(*manifest, v1::QUANTIZE_INT8);
  const WeightAccount int4 = AccountWeights(*manifest, v1::QUANTIZE_INT4);
  // Of 64 or 96 inputs, which is one group of 128 and its scale, or one or two of 64.
  const uint64_t norms = 2 * 2 * 64;
  const uint64_t inner = 2 * 64 + 2 * 16 + 2 * 96;  // Outputs of matrices with 64 inputs.
  EXPECT_EQ(int8.layer_bytes[0], inner * (64 + 4) + 64 * (96 + 4) + norms);
  EXPECT_EQ(int4.layer_bytes[0], inner * (32 + 4) + 64 * (48 + 8) + norms);
  EXPECT_EQ(int8.layer_format, "int8");
  EXPECT_EQ(int4.layer_format, "int4");
  // 259 outputs are 17 panels of 16.
  EXPECT_EQ(int4.embed_bytes, 17 * 16 * (64 + 4));
  EXPECT_EQ(int4.head_bytes, int8.head_bytes);
  EXPECT_EQ(int4.head_format, "int8");

  const WeightAccount mlx = AccountOf(testing::GoldenPath("models/llama31-mlx4"));
  EXPECT_EQ(mlx.layer_format, "affine4g64");
  EXPECT_EQ(mlx.head_format, "affine4g64");
  // Of 260 x 64: words, a scale and a bias in bfloat16.
  EXPECT_EQ(mlx.embed_bytes, 260 * (64 / 2 + 2 + 2));
}

TEST(AccountWeights, NamesMixedFormatsTheLargerFirst) {
  TempFolder folder;
  testing::WriteSmallCheckpoint(folder);
  const auto spec = ParseModelConfig(testing::SmallConfig(), "");
  auto tensors = testing::MakeTensors(*spec, "BF16");
  const auto wide = testing::MakeTensors(*spec, "F32");
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name.find("k_proj") != std::string::npos ||
        tensors[i].name.find("norm") != std::string::npos || tensors[i].name == "lm_head.weight") {
      tensors[i] = wide[i];
    }
  }
  folder.Write("model.safetensors", testing::SafetensorsFile(tensors));
  const WeightAccount account = AccountOf(folder.path());
  EXPECT_EQ(account.layer_format, "bf16+f32");
  EXPECT_EQ(account.head_format, "f32");
}

TEST(TotalKvBytesPerToken, CountsAllLayers) {
  const auto spec = ParseModelConfig(testing::SmallConfig(), "");
  ASSERT_TRUE(spec.ok());
  // Two layers, K and V, one head of 4, two bytes.
  EXPECT_EQ(TotalKvBytesPerToken(*spec, 2), 2 * 2 * 4 * 2);
}

}  // namespace
}  // namespace strata
