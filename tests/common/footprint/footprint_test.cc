#include "common/footprint/footprint.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

constexpr char kMatrix[] = "model.layers.0.mlp.up_proj.weight";

uint64_t Bytes(const StageTensor& tensor, Dtype dtype, uint64_t stored,
               v1::Quantize quantize = v1::QUANTIZE_NONE) {
  return CpuFootprint().WeightBytes(tensor, dtype, stored, quantize);
}

TEST(CpuFootprint, AMatrixOfFloatsTakesWhatIsMadeOfIt) {
  const StageTensor matrix{.name = kMatrix, .shape = {32, 128}};
  EXPECT_EQ(Bytes(matrix, Dtype::kBF16, 32 * 128 * 2), 32 * 128 * 2);
  // A scale for 128 inputs, or a scale and a bias for 64.
  EXPECT_EQ(Bytes(matrix, Dtype::kBF16, 32 * 128 * 2, v1::QUANTIZE_INT8), 32 * (128 + 4));
  EXPECT_EQ(Bytes(matrix, Dtype::kBF16, 32 * 128 * 2, v1::QUANTIZE_INT4), 32 * (64 + 2 * 4));
}

TEST(CpuFootprint, WhatIsStoredInFewerBitsIsNotQuantizedAgain) {
  const StageTensor matrix{.name = kMatrix, .shape = {16, 256}};
  const uint64_t blocks = Bytes(matrix, Dtype::kQ4_K, 16 * 144);
  EXPECT_EQ(blocks, 320 + 16 * 128);
  EXPECT_EQ(Bytes(matrix, Dtype::kQ4_K, 16 * 144, v1::QUANTIZE_INT8), blocks);
}

TEST(CpuFootprint, NormsAndRoutersStayAsTheyAre) {
  const StageTensor norm{.name = "model.layers.0.input_layernorm.weight", .shape = {64}};
  EXPECT_EQ(Bytes(norm, Dtype::kBF16, 128, v1::QUANTIZE_INT4), 128u);
  const StageTensor router{.name = "model.layers.0.mlp.gate.weight", .shape = {8, 64}};
  EXPECT_EQ(Bytes(router, Dtype::kF32, 8 * 64 * 4, v1::QUANTIZE_INT4), 8 * 64 * 4);
}

TEST(CpuFootprint, APartOfAMatrixTakesNothingByItself) {
  const StageTensor part{
      .name = "model.layers.0.mlp.up_proj.scales", .shape = {32, 2}, .part = true};
  EXPECT_EQ(Bytes(part, Dtype::kBF16, 128), 0u);
}

TEST(CpuFootprint, EmbeddingAndHeadAreNeverBelowInt8) {
  EXPECT_EQ(QuantizeOf(v1::QUANTIZE_INT4, /*in_layer=*/true), v1::QUANTIZE_INT4);
  EXPECT_EQ(QuantizeOf(v1::QUANTIZE_INT4, /*in_layer=*/false), v1::QUANTIZE_INT8);
  EXPECT_EQ(QuantizeOf(v1::QUANTIZE_NONE, /*in_layer=*/false), v1::QUANTIZE_NONE);
}

TEST(CpuFootprint, APageHoldsSixteenTokensOfItsGroupsLayers) {
  ModelSpec spec;
  spec.kv_groups.resize(2);
  spec.layers.resize(3);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.kv_heads = 2;
    layer.attention.head_dim = 32;
  }
  spec.layers[1].attention.kv_group = 1;
  const uint64_t layer = 16 * 2 * 2 * 32;  // Numbers: of K and of V.
  EXPECT_EQ(CpuFootprint().PageBytes(spec, 0, 2, 0, v1::KV_DTYPE_F16), 2 * layer * 2);
  EXPECT_EQ(CpuFootprint().PageBytes(spec, 0, 2, 1, v1::KV_DTYPE_F32), layer * 4);
  EXPECT_EQ(CpuFootprint().PageBytes(spec, 2, 2, 1, v1::KV_DTYPE_F32), 0u);
}

StageTensor Matrix(const std::string& name) { return {.name = name, .shape = {16, 16}}; }

TEST(StagedWeights, AreOneLayersWithTheEmbeddingBesideTheFirstAndTheHeadBesideTheLast) {
  StagedWeights staged;
  staged.Add(Matrix("model.embed_tokens.weight"), Dtype::kBF16, 0, 1000);
  for (const auto& [layer, bytes] : {std::pair(7, 10), std::pair(8, 300), std::pair(9, 20)}) {
    const std::string name = "model.layers." + std::to_string(layer) + ".";
    staged.Add(Matrix(name + "mlp.up_proj.weight"), Dtype::kBF16, 0, bytes);
    staged.Add(Matrix(name + "mlp.down_proj.weight"), Dtype::kBF16, 0, bytes);
  }
  staged.Add(Matrix("lm_head.weight"), Dtype::kBF16, 0, 5000);
  EXPECT_EQ(staged.MostBytes(), 5000u + 2 * 20);
}

TEST(StagedWeights, HaveTheLargestTensorBesideThem) {
  StagedWeights staged;
  staged.Add(Matrix("model.layers.0.mlp.up_proj.weight"), Dtype::kBF16, 70, 100);
  staged.Add(Matrix("model.layers.1.mlp.up_proj.weight"), Dtype::kBF16, 400, 100);
  EXPECT_EQ(staged.MostBytes(), 100u + 400);
}

TEST(StagedWeights, OfATiedHeadComeWithTheLastLayer) {
  StagedWeights staged;
  staged.Add(Matrix("model.embed_tokens.weight"), Dtype::kBF16, 0, 1000);
  staged.Add(Matrix("model.layers.0.mlp.up_proj.weight"), Dtype::kBF16, 0, 1);
  staged.Add(Matrix("model.layers.1.mlp.up_proj.weight"), Dtype::kBF16, 0, 50);
  EXPECT_EQ(staged.MostBytes(), 1050u);
}

TEST(HostBytes, AreOfDevicesWithMemoryOfTheirOwnAndGrowWithWhatStepsPass) {
  ModelSpec spec;
  spec.hidden = 1024;
  spec.vocab = 32000;
  spec.layers.resize(1);
  spec.kv_groups.resize(1);
  EXPECT_EQ(CpuFootprint().HostBytes(spec, 512, true, 2048), 0u);
  const uint64_t few = CudaFootprint().HostBytes(spec, 8, false, 2048);
  EXPECT_GT(CudaFootprint().HostBytes(spec, 512, false, 2048), few + 512 * 1024 * sizeof(float));
  EXPECT_GE(CudaFootprint().HostBytes(spec, 8, true, 2048), few + 8 * 32000 * sizeof(float));
}

}  // namespace
}  // namespace strata
