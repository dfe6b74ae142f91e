#include "coordinator/registry/shape_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/status.h"

namespace strata {
namespace {

constexpr char kLlama[] =
    R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_act":"silu",)"
    R"("num_hidden_layers":2,"hidden_size":64,"intermediate_size":128,"num_attention_heads":4,)"
    R"("num_key_value_heads":2,"vocab_size":100,"max_position_embeddings":512,)"
    R"("rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":)";

TEST(ShapeManifestTest, AllTensorsOfTheShapeCountAsBfloat16) {
  const auto manifest = ManifestOfShape(std::string(kLlama) + "false}");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  uint64_t bytes = 0;
  for (const ManifestTensor& tensor : manifest->tensors) {
    EXPECT_EQ(tensor.dtype, Dtype::kBF16);
    bytes += tensor.bytes;
  }
  // Embedding and head, and of a layer q and o, k and v, gate, up and down, and two norms; a norm
  // at the end.
  const uint64_t layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64;
  EXPECT_EQ(bytes, 2 * (2 * 100 * 64 + 2 * layer + 64));
  EXPECT_NE(manifest->FindTensor("model.layers.1.mlp.up_proj.weight"), nullptr);
  const WeightAccount account = AccountWeights(*manifest);
  EXPECT_EQ(account.layer_bytes.size(), 2u);
  EXPECT_EQ(account.layer_format, "bf16");
}

TEST(ShapeManifestTest, ATiedEmbeddingIsOneTensor) {
  const auto tied = ManifestOfShape(std::string(kLlama) + "true}");
  const auto apart = ManifestOfShape(std::string(kLlama) + "false}");
  ASSERT_TRUE(tied.ok() && apart.ok());
  EXPECT_EQ(tied->tensors.size() + 1, apart->tensors.size());
}

TEST(ShapeManifestTest, ConfigurationsOfQuantizedWeightsAreRefused) {
  const auto manifest =
      ManifestOfShape(std::string(kLlama) + R"(false,"quantization":{"group_size":64,"bits":4}})");
  EXPECT_EQ(ReasonOf(manifest.status()), "NOT_SUPPORTED") << manifest.status();
  EXPECT_EQ(ReasonOf(ManifestOfShape("{").status()), "INVALID_CONFIG");
}

}  // namespace
}  // namespace strata
