// Products of 4-bit codes, and of super-blocks of two bits, on every table of this machine: the
// bits of plain programs that follow kernels.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/model/block_formats.h"
#include "common/model/code_books.h"
#include "tests/worker/backend/random_blocks.h"
#include "tests/worker/backend/row_blocks.h"
#include "tests/worker/backend/tables.h"
#include "worker/backend/cpu/weights/packed_matrix.h"

namespace strata::cpu {
namespace {

constexpr Dtype kDtypes[] = {Dtype::kMXFP4,  Dtype::kNVFP4, Dtype::kNVFP4BF16, Dtype::kIQ4_NL,
                             Dtype::kIQ4_XS, Dtype::kNF4,   Dtype::kFP4,       Dtype::kQ2_K};

std::vector<float> RandomFloats(size_t count, uint64_t seed, float size) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<int32_t>(Philox(seed, 1, static_cast<uint32_t>(i)));
    out[i] = size * static_cast<float>(bits >> 8) * 0x1p-23f;
  }
  return out;
}

// A block of 32 activations as int8.
struct Block {
  int64_t q[kBlockPart];
  float d = 0;
};
Block Quantized(const float* x) {
  Block block;
  float a = 0;
  for (size_t k = 0; k < kBlockPart; ++k) {
    a = std::max(a, std::fabs(x[k]));
  }
  block.d = a / 127.0f;
  for (size_t k = 0; k < kBlockPart; ++k) {
    block.q[k] = std::llrint(x[k] * (127.0f / a));
  }
  return block;
}

// The sum of q times a number of each weight, of the inputs [first, end).
template <typename Number>
float Dot(const Block& block, size_t first, size_t end, const Number& number) {
  int64_t sum = 0;
  for (size_t k = first; k < end; ++k) {
    sum += block.q[k] * number(k);
  }
  return static_cast<float>(sum);
}

float CodesProduct(Dtype dtype, const uint8_t* row, size_t inputs, const float* x) {
  const CodeBook& book = BookOf(dtype);
  float acc = 0;
  float factor = book.unit;
  for (size_t part = 0; part < inputs / kBlockPart; ++part) {
    const Block block = Quantized(x + part * kBlockPart);
    const CodePart codes = DecodeCodes(dtype, row, part);
    const auto high = [&](size_t k) { return int64_t{book.high[codes.u[k]]}; };
    const auto low = [&](size_t k) { return int64_t{book.low[codes.u[k]]}; };
    if (IsNvfp4(dtype)) {
      factor = book.divides ? book.unit / codes.row : book.unit * codes.row;
      const float halves[] = {Dot(block, 0, 16, high), Dot(block, 16, 32, high)};
      const float sum = std::fma(halves[1], codes.scales[1], halves[0] * codes.scales[0]);
      acc = std::fma(sum, block.d, acc);
    } else if (book.two) {
      const float sum = std::fma(Dot(block, 0, 32, high), 256.0f, Dot(block, 0, 32, low));
      acc = std::fma(sum * block.d, codes.scales[0], acc);
    } else {
      acc = std::fma(Dot(block, 0, 32, high) * block.d, codes.scales[0], acc);
    }
  }
  return acc * factor;
}

float TwoBitsProduct(const uint8_t* row, size_t inputs, const float* x) {
  float acc = 0;
  for (size_t i = 0; i < inputs / kSuperBlock; ++i) {
    const IntegerSuperBlock super = DecodeSuperBlock(Dtype::kQ2_K, row, i);
    float part = 0;
    float minus = 0;
    for (size_t j = 0; j < kSuperBlock / kBlockPart; ++j) {
      const Block block = Quantized(x + i * kSuperBlock + j * kBlockPart);
      const auto scaled = [&](size_t k) {
        return int64_t{super.c[2 * j + k / 16]} * super.u[j * kBlockPart + k];
      };
      const auto minimum = [&](size_t k) { return int64_t{super.m[2 * j + k / 16]}; };
      part = std::fma(Dot(block, 0, 32, scaled), block.d, part);
      minus = std::fma(Dot(block, 0, 32, minimum), block.d, minus);
    }
    acc = std::fma(part, super.scale, acc);
    acc = std::fma(minus, -super.minimum, acc);
  }
  return acc;
}

float FloatProduct(Dtype dtype, const uint8_t* row, size_t inputs, const float* x) {
  float acc = 0;
  for (size_t part = 0; part < inputs / kBlockPart; ++part) {
    float weights[kBlockPart];
    DecodePart(dtype, row, part, weights);
    for (size_t k = 0; k < kBlockPart; ++k) {
      acc = std::fma(x[part * kBlockPart + k], weights[k], acc);
    }
  }
  return acc;
}

bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

class CodeKernelsTest : public ::testing::TestWithParam<size_t> {
 protected:
  const Kernels& kernels() const { return *RunnableTables()[GetParam()]; }

  // All numbers of rows up to `most`, of which x are the activations.
  void Check(Dtype dtype, const std::string& bytes, size_t outputs, size_t inputs,
             const std::vector<float>& x, uint32_t most) {
    const auto* const data = reinterpret_cast<const uint8_t*>(bytes.data()) + 1;
    const size_t row_bytes = BlockRowBytes(dtype, inputs);
    ThreadPool pool(2, 2);
    PackedMatrix matrix;
    ASSERT_TRUE(matrix.PackBlocks({dtype, {outputs, inputs}, data, bytes.size() - 1}, &pool).ok());
    for (const bool int8 : {true, false}) {
      std::vector<float> plain;
      for (uint32_t r = 0; r < most; ++r) {
        for (size_t n = 0; n < outputs; ++n) {
          const uint8_t* const row = data + n * row_bytes;
          const float* const of = x.data() + r * inputs;
          plain.push_back(!int8                   ? FloatProduct(dtype, row, inputs, of)
                          : dtype == Dtype::kQ2_K ? TwoBitsProduct(row, inputs, of)
                                                  : CodesProduct(dtype, row, inputs, of));
        }
      }
      for (uint32_t rows = 1; rows <= most; ++rows) {
        const std::vector<uint8_t> packed = PackRowBlocks(kernels(), x, rows, inputs, int8);
        std::vector<float> out(rows * outputs);
        kernels().matmul({.weights = matrix.view(),
                          .packed = packed.data(),
                          .int8 = int8,
                          .rows = rows,
                          .out = out.data(),
                          .out_stride = outputs},
                         0, matrix.view().panels());
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_TRUE(SameBits(out[i], plain[i]))
              << DtypeName(dtype) << " [" << outputs << ", " << inputs << "] row " << i / outputs
              << " of " << rows << " output " << i % outputs << ": " << out[i] << " for "
              << plain[i] << (int8 ? " int8" : " float");
        }
      }
    }
  }
};

TEST_P(CodeKernelsTest, EveryFormatGivesThePlainProgramsBits) {
#ifdef STRATA_SANITIZED
  constexpr uint32_t kMostRows = 3;
#else
  constexpr uint32_t kMostRows = 18;
#endif
  uint64_t seed = 1;
  for (const Dtype dtype : kDtypes) {
    for (const size_t outputs : {7u, 37u}) {
      // Whole groups, and what is left of them.
      for (const size_t blocks : {1u, 5u, 8u, 11u}) {
        const size_t unit = BlockElements(dtype);
        const size_t inputs = std::max<size_t>(1, blocks * kBlockPart / unit) * unit;
        const std::vector<float> x = RandomFloats(kMostRows * inputs, ++seed, 3);
        ASSERT_NO_FATAL_FAILURE(
            Check(dtype, RandomRows(dtype, outputs, inputs, seed), outputs, inputs, x, kMostRows));
      }
    }
  }
}

// All codes the same, and all activations +-127, so that sums are as large as can be.
TEST_P(CodeKernelsTest, ExtremesOfTheBooksDoNotSaturate) {
  for (const Dtype dtype : kDtypes) {
    const size_t row_bytes = BlockRowBytes(dtype, kSuperBlock);
    const std::string random = RandomRows(dtype, 1, kSuperBlock, 3);
    for (int code = 0; code < 16; ++code) {
      std::string bytes = random;
      for (size_t block = 0; block < kSuperBlock / BlockElements(dtype); ++block) {
        // Codes are a block's last bytes, half a byte each; of Q2_K a quarter, before four others.
        const size_t count = BlockElements(dtype) / (dtype == Dtype::kQ2_K ? 4 : 2);
        const size_t end = 1 + row_bytes - block * BlockBytes(dtype);
        const size_t first = end - count - (dtype == Dtype::kQ2_K ? 4 : 0);
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(first), count,
                    static_cast<char>(code * 17));
        if (dtype == Dtype::kQ2_K) {
          std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(first) - 16, 16, '\xff');
        }
      }
      for (const float sign : {2.0f, -2.0f}) {
        ASSERT_NO_FATAL_FAILURE(
            Check(dtype, bytes, 1, kSuperBlock, std::vector<float>(3 * kSuperBlock, sign), 3));
      }
    }
  }
}

// Weights about the ends of each float: subnormal and infinite ones, and those that are half way
// between two, with what is no number beside them.
TEST_P(CodeKernelsTest, WeightsAreRoundedAsTheirRowSays) {
  std::vector<float> scales = {1 + 0x1p-8f,   1 + 0x3p-8f,
                               1 + 0x1p-11f,  1 + 0x3p-11f,
                               65519.996f,    65520,
                               -65520,        0x1p-14f,
                               0x1.ffcp-15f,  0x1p-24f,
                               0x1p-25f,      0x1.000002p-25f,
                               0x1p-26f,      0x1.fffffep+127f,
                               0x1p-126f,     0x1p-149f,
                               0x1.fffp-127f, 0,
                               -0.0f,         3e38f};
  for (const uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7fffffffu, 0xffffffffu}) {
    scales.push_back(std::bit_cast<float>(bits));
  }
  for (const Dtype dtype : {Dtype::kNF4, Dtype::kFP4}) {
    for (const auto rounding :
         {CodeRounding::kNone, CodeRounding::kBfloat16, CodeRounding::kHalf}) {
      // One scale and one row each, with every code once among zeros.
      const size_t row_bytes = BlockRowBytes(dtype, 64);
      std::string bytes(1 + scales.size() * row_bytes, '\0');
      for (size_t row = 0; row < scales.size(); ++row) {
        char* const at = bytes.data() + 1 + row * row_bytes;
        std::memcpy(at, &rounding, sizeof(rounding));
        std::memcpy(at + 4, &scales[row], sizeof(float));
        uint8_t codes[kBlockPart];
        for (size_t i = 0; i < kBlockPart; ++i) {
          codes[i] = static_cast<uint8_t>(i % 16);
        }
        PutCodes(codes, reinterpret_cast<uint8_t*>(at) + 8);
        PutCodes(codes, reinterpret_cast<uint8_t*>(at) + 24);
      }
      // Each input alone, so that a product is one weight; and of the other block one that is zero.
      for (size_t k = 0; k < 16; ++k) {
        std::vector<float> x(64);
        x[k] = 1;
        x[kBlockPart + (dtype == Dtype::kNF4 ? 7 : 0)] = 1;
        ASSERT_NO_FATAL_FAILURE(Check(dtype, bytes, scales.size(), 64, x, 1));
      }
    }
  }
}

// Scales that mean no number.
TEST_P(CodeKernelsTest, ScalesThatAreNoNumberStayVisible) {
  for (const auto& [dtype, at, byte] :
       {std::tuple(Dtype::kMXFP4, 1, '\xff'), std::tuple(Dtype::kNVFP4, 5, '\x7f'),
        std::tuple(Dtype::kNVFP4, 6, '\xff'), std::tuple(Dtype::kNVFP4BF16, 6, '\x7f')}) {
    std::string bytes = RandomRows(dtype, 1, 64, 5);
    bytes[static_cast<size_t>(at)] = byte;
    ASSERT_NO_FATAL_FAILURE(Check(dtype, bytes, 1, 64, RandomFloats(2 * 64, 6, 1), 2));
    float weights[kBlockPart];
    DecodePart(dtype, reinterpret_cast<const uint8_t*>(bytes.data()) + 1, 0, weights);
    EXPECT_TRUE(std::isnan(weights[at == 6 ? 16 : 0])) << DtypeName(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(, CodeKernelsTest, ::testing::Range<size_t>(0, RunnableTables().size()),
                         [](const auto& info) { return TableName(RunnableTables()[info.param]); });

}  // namespace
}  // namespace strata::cpu
