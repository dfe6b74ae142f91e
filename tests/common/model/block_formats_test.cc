// Blocks against gguf-py, tests/golden/gguf.
#include "common/model/block_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/checkpoint/checkpoint.h"
#include "common/model/code_books.h"
#include "tests/golden.h"

namespace strata {
namespace {

struct Golden {
  Dtype dtype;
  const char* name;
  const char* file;
};
constexpr Golden kGolden[] = {
    {Dtype::kQ4_0, "q4_0", "dequant"},          {Dtype::kQ8_0, "q8_0", "dequant"},
    {Dtype::kQ4_K, "q4_k", "dequant"},          {Dtype::kQ5_K, "q5_k", "dequant"},
    {Dtype::kQ6_K, "q6_k", "dequant"},          {Dtype::kQ4_1, "q4_1", "dequant_more"},
    {Dtype::kQ5_0, "q5_0", "dequant_more"},     {Dtype::kQ5_1, "q5_1", "dequant_more"},
    {Dtype::kQ2_K, "q2_k", "dequant_more"},     {Dtype::kQ3_K, "q3_k", "dequant_more"},
    {Dtype::kIQ4_NL, "iq4_nl", "dequant_more"}, {Dtype::kIQ4_XS, "iq4_xs", "dequant_more"},
    {Dtype::kMXFP4, "mxfp4", "dequant_more"},
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
    if (PanelsOf(golden.dtype).super() ||
        PanelsOf(golden.dtype).kind == BlockPanels::Kind::kCodes) {
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
    const bool six = PanelsOf(golden.dtype).kind == BlockPanels::Kind::kSuper6;
    const bool two = golden.dtype == Dtype::kQ2_K;
    const size_t inputs = six || two ? 16 : 32;  // Of a factor.
    for (size_t k = 0; k < blocks.values.size(); ++k) {
      const size_t in_super = k % kSuperBlock;
      const IntegerSuperBlock block = DecodeSuperBlock(golden.dtype, row, k / kSuperBlock);
      const int u = block.u[in_super];
      ASSERT_LT(u, six ? 64 : two ? 4 : golden.dtype == Dtype::kQ5_K ? 32 : 16);
      // As the CPU backend computes a weight.
      const auto c = static_cast<float>(block.c[in_super / inputs]);
      const float minus =
          six ? 0.0f : block.minimum * static_cast<float>(block.m[in_super / inputs]);
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
  EXPECT_EQ(BlockMatrixBytes(Dtype::kQ3_K, 16, 256), 320 + 16 * 192);
  EXPECT_EQ(BlockMatrixBytes(Dtype::kQ2_K, 16, 256), 320 + 16 * 64);
  // Codes: bytes for groups of 256 inputs, the last as large, and of whole rows.
  EXPECT_EQ(BlockMatrixBytes(Dtype::kIQ4_NL, 17, 288), 2 * (2 * 256 + 288 * 8));
  EXPECT_EQ(BlockMatrixBytes(Dtype::kIQ4_XS, 16, 512), 2 * 192 + 512 * 8);
  EXPECT_EQ(BlockMatrixBytes(Dtype::kNVFP4, 16, 256), 64 + 256 + 256 * 8);
  EXPECT_EQ(BlockMatrixBytes(Dtype::kNVFP4BF16, 17, 256), 2 * (64 + 256 + 256 * 8));
  EXPECT_EQ(BlockMatrixBytes(Dtype::kNF4, 16, 320), 64 + 2 * 256 + 320 * 8);
  EXPECT_EQ(BlockMatrixBytes(Dtype::kFP4, 16, 256), 64 + 256 + 256 * 8);
}

TEST(BlockFormats, BytesOfTensors) {
  EXPECT_EQ(TensorBytes(Dtype::kF16, std::vector<uint64_t>{3, 5}), 30);
  EXPECT_EQ(TensorBytes(Dtype::kF32, {}), 4);
  EXPECT_EQ(TensorBytes(Dtype::kQ8_0, std::vector<uint64_t>{3, 64}), 204);
  EXPECT_EQ(TensorBytes(Dtype::kQ6_K, std::vector<uint64_t>{2, 512}), 840);
  EXPECT_EQ(TensorBytes(Dtype::kNVFP4, std::vector<uint64_t>{3, 64}), 3 * (4 + 2 * 18));
  EXPECT_EQ(TensorBytes(Dtype::kNF4, std::vector<uint64_t>{2, 3, 128}), 6 * (4 + 2 * 36));
  EXPECT_EQ(TensorBytes(Dtype::kFP4, std::vector<uint64_t>{2, 96}), std::nullopt);
  EXPECT_EQ(TensorBytes(Dtype::kQ8_0, std::vector<uint64_t>{64, 3}), std::nullopt);
  EXPECT_EQ(TensorBytes(Dtype::kQ4_K, std::vector<uint64_t>{1, 128}), std::nullopt);
  EXPECT_EQ(TensorBytes(Dtype::kQ8_0, {}), std::nullopt);
  const uint64_t huge = uint64_t{1} << 62;
  EXPECT_EQ(TensorBytes(Dtype::kF32, std::vector<uint64_t>{huge}), std::nullopt);
  EXPECT_EQ(TensorBytes(Dtype::kU8, std::vector<uint64_t>{huge, 8}), std::nullopt);
  EXPECT_EQ(TensorBytes(Dtype::kQ8_0, std::vector<uint64_t>{huge, 32}), std::nullopt);
}

// By hand, from what the formats say.
TEST(BlockFormats, CodesStandForTheirBooksValues) {
  const auto decode = [](Dtype dtype, std::vector<uint8_t> row, size_t part) {
    uint8_t codes[kBlockPart];
    for (size_t i = 0; i < kBlockPart; ++i) {
      codes[i] = static_cast<uint8_t>(i % 16);
    }
    row.resize(row.size() + kBlockPart / 2);
    PutCodes(codes, row.data() + row.size() - kBlockPart / 2);
    std::vector<float> out(kBlockPart);
    DecodePart(dtype, row.data(), part, out.data());
    return out;
  };
  // 2^-3; the codes 7 and 9 are 6 and -0.5.
  const std::vector<float> mx = decode(Dtype::kMXFP4, {124}, 0);
  EXPECT_EQ(mx[7], 0.75f);
  EXPECT_EQ(mx[25], -0.0625f);
  EXPECT_EQ(decode(Dtype::kMXFP4, {0}, 0)[2], 0x1p-127f);
  EXPECT_TRUE(std::isnan(decode(Dtype::kMXFP4, {255}, 0)[2]));
  // 0.25; of the halves 2^-9 and -448.
  const std::vector<float> nv = decode(Dtype::kNVFP4, {0, 0, 0x80, 0x3e, 0x01, 0xfe}, 0);
  EXPECT_EQ(nv[7], 6 * 0x1p-11f);
  EXPECT_EQ(nv[16 + 12], -2.0f * -112.0f);
  // 3 divides 1 and -448; rounded to 8 bits.
  const std::vector<float> bf = decode(Dtype::kNVFP4BF16, {0, 0, 0x40, 0x40, 0x38, 0xfe}, 0);
  EXPECT_EQ(bf[1], 0x1.56p-3f);
  EXPECT_EQ(bf[5], 1.0f);
  EXPECT_EQ(bf[16 + 1], -0x1.2ap+6f);  // -74.66…
  // 2, of 64 inputs; not rounded.
  std::vector<uint8_t> block = {0, 0, 0, 0, 0, 0, 0, 0x40};
  block.resize(8 + 16);
  const std::vector<float> nf = decode(Dtype::kNF4, block, 1);
  EXPECT_EQ(nf[0], -2.0f);
  EXPECT_EQ(nf[1], 2 * -0.6961928009986877f);
  EXPECT_EQ(nf[7], 0.0f);
  EXPECT_EQ(nf[31], 2.0f);
  const std::vector<float> fp = decode(Dtype::kFP4, block, 1);
  EXPECT_EQ(fp[1], 2 * 0.0052083334885537624f);
  EXPECT_EQ(fp[10], 2 * -0.6666666865348816f);
  block[0] = static_cast<uint8_t>(CodeRounding::kBfloat16);
  EXPECT_EQ(decode(Dtype::kFP4, block, 1)[10], -0x1.56p+0f);
  EXPECT_EQ(decode(Dtype::kNF4, block, 1)[1], -0x1.64p+0f);
  block[0] = static_cast<uint8_t>(CodeRounding::kHalf);
  EXPECT_EQ(decode(Dtype::kFP4, block, 1)[10], -0x1.554p+0f);
  EXPECT_EQ(decode(Dtype::kNF4, block, 1)[1], -0x1.648p+0f);
}

// What products of integers are of is the same, but for the last of 16 bits.
TEST(BlockFormats, CodeBooksAsIntegers) {
  for (const Dtype dtype : {Dtype::kMXFP4, Dtype::kNVFP4, Dtype::kNVFP4BF16, Dtype::kIQ4_NL,
                            Dtype::kIQ4_XS, Dtype::kNF4, Dtype::kFP4}) {
    SCOPED_TRACE(DtypeName(dtype));
    const CodeBook& book = BookOf(dtype);
    for (size_t code = 0; code < kCodes; ++code) {
      const int number = book.two ? 256 * book.high[code] + book.low[code] : book.high[code];
      EXPECT_NEAR(static_cast<float>(number) * book.unit, book.values[code],
                  dtype == Dtype::kNF4 ? 0.51f / 32512 : 1e-7f)
          << code;
      EXPECT_LE(std::abs(book.high[code]), book.narrow ? 12 : 128);
    }
  }
}

TEST(BlockFormats, NamesOfDtypes) {
  for (int i = 0; i <= static_cast<int>(Dtype::kNVFP4BF16); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(DtypeOfName(DtypeName(dtype)), dtype);
    EXPECT_EQ(IsBlocks(dtype), DtypeBits(dtype) == 0) << DtypeName(dtype);
    EXPECT_EQ(IsBlocks(dtype), BlockBytes(dtype) != 0) << DtypeName(dtype);
  }
  EXPECT_EQ(DtypeOfName("IQ3_S"), std::nullopt);
}

}  // namespace
}  // namespace strata
