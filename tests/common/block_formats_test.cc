// Blocks against gguf-py, tests/golden/gguf.
#include "common/block_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/checkpoint/checkpoint.h"
#include "tests/golden.h"

namespace strata {
namespace {

struct Golden {
  Dtype dtype;
  const char* name;
  const char* file;
};
constexpr Golden kGolden[] = {
    {Dtype::kQ4_0, "q4_0", "dequant"},      {Dtype::kQ8_0, "q8_0", "dequant"},
    {Dtype::kQ4_K, "q4_k", "dequant"},      {Dtype::kQ5_K, "q5_k", "dequant"},
    {Dtype::kQ6_K, "q6_k", "dequant"},      {Dtype::kQ4_1, "q4_1", "dequant_more"},
    {Dtype::kQ5_0, "q5_0", "dequant_more"}, {Dtype::kQ5_1, "q5_1", "dequant_more"},
};

// Blocks, and the values that they stand for.
struct Blocks {
  std::string bytes;
  std::vector<float> values;
};

Blocks Read(const Golden& golden) {
  const std::string file = testing::ReadFileOrFail(
      testing::GoldenPath(std::string("gguf/") + golden.file + ".safetensors"));
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const auto entries = ParseSafetensorsHeader(file.substr(8, length), file.size() - 8 - length,
                                              8 + length, golden.file);
  EXPECT_TRUE(entries.ok()) << entries.status();
  Blocks blocks;
  for (const TensorEntry& entry : *entries) {
    if (entry.name == std::string(golden.name) + ".blocks") {
      blocks.bytes = file.substr(entry.offset, entry.bytes);
    } else if (entry.name == std::string(golden.name) + ".values") {
      blocks.values.resize(entry.bytes / sizeof(float));
      std::memcpy(blocks.values.data(), file.data() + entry.offset, entry.bytes);
    }
  }
  EXPECT_EQ(blocks.bytes.size() / BlockBytes(golden.dtype) * BlockElements(golden.dtype),
            blocks.values.size());
  EXPECT_FALSE(blocks.values.empty());
  return blocks;
}

TEST(BlockFormats, DequantizeAsGgufPyDoes) {
  for (const Golden& golden : kGolden) {
    SCOPED_TRACE(golden.name);
    const Blocks blocks = Read(golden);
    for (size_t part = 0; part < blocks.values.size() / kBlockPart; ++part) {
      float values[kBlockPart];
      DecodePart(golden.dtype, reinterpret_cast<const uint8_t*>(blocks.bytes.data()), part, values);
      for (size_t i = 0; i < kBlockPart; ++i) {
        ASSERT_EQ(values[i], blocks.values[part * kBlockPart + i]) << part << " " << i;
      }
    }
  }
}

TEST(BlockFormats, IntegersAreTheSameWeights) {
  for (const Golden& golden : kGolden) {
    if (PanelsOf(golden.dtype).super()) {
      continue;
    }
    SCOPED_TRACE(golden.name);
    const Blocks blocks = Read(golden);
    const bool int8 = PanelsOf(golden.dtype).kind == BlockPanels::Kind::kInt8;
    const bool four = PanelsOf(golden.dtype).kind == BlockPanels::Kind::kAffine4;
    for (size_t part = 0; part < blocks.values.size() / kBlockPart; ++part) {
      const IntegerPart integers =
          DecodeIntegers(golden.dtype, reinterpret_cast<const uint8_t*>(blocks.bytes.data()), part);
      for (size_t i = 0; i < kBlockPart; ++i) {
        const int u = integers.u[i];
        ASSERT_LE(u, four ? 15 : 255);
        // As the CPU backend computes a weight.
        ASSERT_EQ(std::fma(integers.scale, static_cast<float>(int8 ? u - 128 : u), integers.bias),
                  blocks.values[part * kBlockPart + i])
            << part << " " << i;
      }
    }
  }
}

TEST(BlockFormats, IntegersOfSuperBlocksAreTheSameWeights) {
  for (const Golden& golden : kGolden) {
    if (!PanelsOf(golden.dtype).super()) {
      continue;
    }
    SCOPED_TRACE(golden.name);
    const Blocks blocks = Read(golden);
    const auto* const row = reinterpret_cast<const uint8_t*>(blocks.bytes.data());
    const bool six = golden.dtype == Dtype::kQ6_K;
    for (size_t k = 0; k < blocks.values.size(); ++k) {
      const size_t in_super = k % kSuperBlock;
      const IntegerSuperBlock block = DecodeSuperBlock(golden.dtype, row, k / kSuperBlock);
      const int u = block.u[in_super];
      ASSERT_LT(u, six ? 64 : golden.dtype == Dtype::kQ5_K ? 32 : 16);
      // As the CPU backend computes a weight.
      const auto c = static_cast<float>(block.c[in_super / (six ? 16 : 32)]);
      const float minus = six ? 0.0f : block.minimum * static_cast<float>(block.m[in_super / 32]);
      ASSERT_EQ(six ? block.scale * c * static_cast<float>(u - 32)
                    : std::fma(block.scale * c, static_cast<float>(u), -minus),
                blocks.values[k])
          << k;
    }
  }
}

// By hand: the accounts of plans count with it.
TEST(BlockFormats, BytesOfLoadedMatrices) {
  EXPECT_EQ(BlockMatrixBytes(Dtype::kQ8_0, 16, 64), 16 * 2 * 36);
  EXPECT_EQ(BlockMatrixBytes(Dtype::kQ4_0, 17, 64), 32 * 2 * 20);
  EXPECT_EQ(BlockMatrixBytes(Dtype::kQ5_1, 16, 64), 16 * 2 * 36);
  EXPECT_EQ(BlockMatrixBytes(Dtype::kQ4_K, 16, 256), 320 + 16 * 128);
  EXPECT_EQ(BlockMatrixBytes(Dtype::kQ5_K, 16, 256), 320 + 16 * 160);
  EXPECT_EQ(BlockMatrixBytes(Dtype::kQ6_K, 33, 512), 3 * 2 * (320 + 16 * 192));
}

TEST(BlockFormats, BytesOfTensors) {
  EXPECT_EQ(TensorBytes(Dtype::kF16, std::vector<uint64_t>{3, 5}), 30);
  EXPECT_EQ(TensorBytes(Dtype::kF32, {}), 4);
  EXPECT_EQ(TensorBytes(Dtype::kQ8_0, std::vector<uint64_t>{3, 64}), 204);
  EXPECT_EQ(TensorBytes(Dtype::kQ6_K, std::vector<uint64_t>{2, 512}), 840);
  EXPECT_EQ(TensorBytes(Dtype::kQ8_0, std::vector<uint64_t>{64, 3}), std::nullopt);
  EXPECT_EQ(TensorBytes(Dtype::kQ4_K, std::vector<uint64_t>{1, 128}), std::nullopt);
  EXPECT_EQ(TensorBytes(Dtype::kQ8_0, {}), std::nullopt);
  const uint64_t huge = uint64_t{1} << 62;
  EXPECT_EQ(TensorBytes(Dtype::kF32, std::vector<uint64_t>{huge}), std::nullopt);
  EXPECT_EQ(TensorBytes(Dtype::kU8, std::vector<uint64_t>{huge, 8}), std::nullopt);
  EXPECT_EQ(TensorBytes(Dtype::kQ8_0, std::vector<uint64_t>{huge, 32}), std::nullopt);
}

TEST(BlockFormats, NamesOfDtypes) {
  for (int i = 0; i <= static_cast<int>(Dtype::kQ6_K); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(DtypeOfName(DtypeName(dtype)), dtype);
    EXPECT_EQ(IsBlocks(dtype), DtypeBytes(dtype) == 0) << DtypeName(dtype);
    EXPECT_EQ(IsBlocks(dtype), BlockBytes(dtype) != 0) << DtypeName(dtype);
  }
  EXPECT_EQ(DtypeOfName("Q3_K"), std::nullopt);
}

}  // namespace
}  // namespace strata
