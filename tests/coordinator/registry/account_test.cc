#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

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
  // The widest matrix of each layer is what the most is read at once for.
  EXPECT_EQ(account.layer_source_bytes, std::vector<uint64_t>(3, 2 * 96 * 64));
  EXPECT_EQ(account.end_source_bytes, 2 * 259 * 64);
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

TEST(AccountWeights, CountsAllExpertsAndWhatATokenReadsOfThem) {
  const auto manifest = DigestCheckpoint(testing::GoldenPath("models/qwen3-moe"), nullptr);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  // q 96x64, k and v 48x64, o 64x96; norms of 64 and of heads of 24; a router of 6 experts.
  const uint64_t attention = 2 * (96 * 64 + 2 * 48 * 64 + 64 * 96) + 2 * (2 * 64 + 2 * 24);
  const uint64_t router = 2 * 6 * 64;
  const uint64_t used = manifest->spec.layers[0].mlp.router.used;
  const uint64_t expert = 2 * 3 * 32 * 64;
  const WeightAccount account = AccountWeights(*manifest);
  EXPECT_EQ(account.layer_bytes[0], attention + router + 6 * expert);
  EXPECT_EQ(account.layer_read_bytes[0], attention + router + used * expert);
  // The router stays as it is: nothing else of a layer is in bfloat16 then.
  const WeightAccount int8 = AccountWeights(*manifest, v1::QUANTIZE_INT8);
  const uint64_t expert8 = 2 * 32 * (64 + 4) + 64 * (32 + 4);
  EXPECT_EQ(int8.layer_bytes[0] - int8.layer_read_bytes[0], (6 - used) * expert8);
  EXPECT_EQ(int8.layer_bytes[0], (96 + 2 * 48) * (64 + 4) + 64 * (96 + 4) + 2 * (2 * 64 + 2 * 24) +
                                     router + 6 * expert8);
  EXPECT_EQ(int8.layer_format, "int8");
  // In one tensor, which MLX quantized, and one that it left: 4 experts, 2 of them used.
  const WeightAccount mlx = AccountOf(testing::GoldenPath("models/mixtral-mlx4-mixed"));
  EXPECT_EQ(mlx.layer_bytes[0] - mlx.layer_read_bytes[0],
            2 * (2 * 64 * (64 / 2 + 2 * (2 + 2)) + 2 * 64 * 64));
  EXPECT_EQ(mlx.layer_format.find("affine8"), std::string::npos) << mlx.layer_format;
}

TEST(AccountWeights, CountsMxfp4AsItIsLoaded) {
  const WeightAccount floats = AccountOf(testing::GoldenPath("models/gpt-oss"));
  const WeightAccount blocks = AccountOf(testing::GoldenPath("models/gpt-oss-mxfp4"));
  // Four experts of 3 x 64 x 32 weights: two bytes each, or half a byte, and for each 16 outputs
  // and 256 inputs or fewer 128 exponents.
  const uint64_t weights = 4 * 3 * 64 * 32;
  const uint64_t kept = weights / 2 + 4 * (2 * 2 + 4) * 128;
  EXPECT_EQ(floats.layer_bytes[0] - blocks.layer_bytes[0], 2 * weights - kept);
  EXPECT_EQ(floats.layer_format, "bf16");
  EXPECT_EQ(blocks.layer_format, "bf16+mxfp4");
  // Half of the experts, biases and all.
  EXPECT_EQ(blocks.layer_bytes[0] - blocks.layer_read_bytes[0], (kept + 4 * (64 + 64) * 2) / 2);
}

TEST(AccountWeights, CountsWhatWorkersKeepOfOtherToolsFormats) {
  // Weights of a layer's matrices, and bytes of its two norms.
  const uint64_t weights = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64;
  const uint64_t norms = 2 * 2 * 64;
  const auto account = [](const std::string& name, v1::Quantize quantize = v1::QUANTIZE_NONE) {
    const auto manifest = DigestCheckpoint(testing::GoldenPath("models/" + name), nullptr);
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    const auto again = ManifestFromJson(ManifestToJson(*manifest));
    EXPECT_TRUE(again.ok()) << again.status();
    return AccountWeights(*again, quantize);
  };
  // 4 bits, and a float32 scale and bias for 32 inputs.
  const WeightAccount awq = account("llama31-awq");
  EXPECT_EQ(awq.layer_format, "awq4g32");
  EXPECT_EQ(awq.head_format, "bf16");
  EXPECT_EQ(awq.layer_bytes[0], weights * 3 / 4 + norms);
  const WeightAccount floats = account("llama31-fp8");
  EXPECT_EQ(floats.layer_format, "fp8");
  EXPECT_EQ(floats.layer_bytes[0], weights * 4 + norms);
  const WeightAccount int8 = account("llama31-fp8", v1::QUANTIZE_INT8);
  EXPECT_EQ(int8.layer_format, "int8");
  EXPECT_LT(int8.layer_bytes[0], weights * 9 / 8 + norms);
  // Half a byte; for each 16 outputs 64 bytes of their rows, and 256 of scales for 256 inputs or
  // fewer.
  const WeightAccount codes = account("llama31-nf4");
  EXPECT_EQ(codes.layer_format, "nf4");
  EXPECT_EQ(codes.layer_bytes[0], weights / 2 + (2 * 4 + 2 * 2 + 2 * 8 + 4) * (64 + 256) + norms);
  const WeightAccount moe4 = account("mixtral-nvfp4");
  EXPECT_EQ(moe4.layer_bytes[0] - moe4.layer_read_bytes[0], 2 * 3 * (64 * 64 / 2 + 4 * (64 + 256)));
  EXPECT_EQ(account("llama31-gptq4-actorder").layer_format, "gptq4g32-actorder");
  EXPECT_EQ(account("llama31-packed8-zeros").layer_format, "packed8");
  EXPECT_EQ(account("phi3-awq").layer_format, "awq4g32+bf16");

  // 6 experts of 3 x 32 x 64 weights, of which a token has 3; a router; norms of q's and k's heads.
  const uint64_t expert = 3 * 32 * 64 * 3 / 4;
  const uint64_t rest = 2 * 6 * 64 + norms + 2 * 2 * 24;
  for (const char* name : {"qwen3-moe-awq", "qwen3-moe-gptq4", "qwen3-moe-packed4"}) {
    const WeightAccount moe = account(name);
    EXPECT_EQ(moe.layer_bytes[0], (2 * 96 + 2 * 48) * 64 * 3 / 4 + 6 * expert + rest) << name;
    EXPECT_EQ(moe.layer_bytes[0] - moe.layer_read_bytes[0], 3 * expert) << name;
  }
  EXPECT_EQ(account("qwen3-moe-awq").layer_format, "awq4g32");
  const WeightAccount ordered = account("mixtral-gptq4-actorder");
  EXPECT_EQ(ordered.layer_bytes[0] - ordered.layer_read_bytes[0], 2 * 3 * 64 * 64 * 4);
  const WeightAccount int4 = account("mixtral-gptq4-actorder", v1::QUANTIZE_INT4);
  EXPECT_EQ(int4.layer_bytes[0] - int4.layer_read_bytes[0], 2 * 3 * 64 * (32 + 4));
  // q, the latent vector (40 outputs, in panels of 16), o and the dense MLP; what latent vectors
  // become keys and values by is in float32.
  const uint64_t latent = 4 * (16 + 16) * 32;
  EXPECT_EQ(account("deepseek-v2-awq").layer_bytes[0],
            ((4 * 24 + 48) * 64 + 64 * 64 + 3 * 96 * 64) * 3 / 4 + latent * 4 + norms + 2 * 32);
}

TEST(StoredKindsOf, SaysWhatIsLeftToQuantize) {
  const auto kinds = [](const std::string& path) {
    const auto manifest = LookAtCheckpoint(testing::GoldenPath(path));
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    const StoredKinds found = StoredKindsOf(*manifest);
    return std::pair(found.integers, found.quantizable);
  };
  EXPECT_EQ(kinds("models/llama"), std::pair(false, true));
  EXPECT_EQ(kinds("models/llama31-fp8"), std::pair(false, true));
  EXPECT_EQ(kinds("models/gpt-oss-mxfp4"), std::pair(true, true));
  EXPECT_EQ(kinds("models/llama31-mlx4"), std::pair(true, false));
  // One matrix of floats, which AWQ left.
  EXPECT_EQ(kinds("models/phi3-awq"), std::pair(true, false));
  EXPECT_EQ(kinds("gguf/qwen2-q4_0.gguf"), std::pair(true, false));
  // A router stays as it is.
  EXPECT_EQ(kinds("gguf/qwen3-moe-q8_0.gguf"), std::pair(true, false));
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
