// Products of quantized weights: every instruction set gives the bits of the plain program here.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "common/model/block_formats.h"
#include "tests/worker/backend/row_blocks.h"
#include "tests/worker/backend/tables.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/cpu/weights/packed_matrix.h"
#include "worker/backend/cpu/weights/quantize.h"

namespace strata::cpu {
namespace {

std::vector<float> RandomFloats(size_t count, uint32_t seed, float size = 1) {
  std::vector<float> out(count);
  uint64_t state = seed;
  for (float& x : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x = size * static_cast<float>(static_cast<int32_t>(state >> 33) - (1 << 30)) * 0x1p-30f;
  }
  return out;
}

// Weights w = s * (u - zero) + b as they are stored, [outputs][inputs].
struct Stored {
  PanelView shape;
  std::vector<int> u;
  std::vector<float> s, b;  // [outputs][groups]
  float zero = 0;
  bool affine = false;
  // Of kSuper6 [outputs][inputs / 16]: what multiplies the integers. Else empty.
  std::vector<int> c = {};
  // Inputs that s and b are of.
  size_t group() const {
    return shape.format == WeightFormat::kSuper4 || shape.format == WeightFormat::kSuper5
               ? 32
               : shape.group;
  }
  size_t groups() const { return (shape.inputs + group() - 1) / group(); }
  // What the integer of a weight counts for.
  int integer(size_t output, size_t k) const {
    const size_t at = output * shape.inputs + k;
    return (u[at] - static_cast<int>(zero)) * (c.empty() ? 1 : c[at / 16]);
  }
};

struct Made {
  Stored stored;
  PackedMatrix matrix;
};

struct Format {
  WeightFormat format;
  Dtype scale = Dtype::kF32;
  uint32_t group = 0;  // 0: quantized here.
  friend void PrintTo(const Format& f, std::ostream* out) {
    *out << static_cast<int>(f.format) << "/" << DtypeName(f.scale) << "/g" << f.group;
  }
};

constexpr Format kFormats[] = {
    {WeightFormat::kInt8},
    {WeightFormat::kAffine4},
    {WeightFormat::kAffine8, Dtype::kF32, 32},
    {WeightFormat::kAffine8, Dtype::kBF16, 64},
    {WeightFormat::kAffine8, Dtype::kF16, 128},
    {WeightFormat::kAffine4, Dtype::kF32, 64},
    {WeightFormat::kAffine4, Dtype::kBF16, 32},
    {WeightFormat::kAffine4, Dtype::kF16, 128},
    {WeightFormat::kAffine4, Dtype::kF32, 32},
    {WeightFormat::kAffine8, Dtype::kF16, 32},
    {WeightFormat::kSuper4, Dtype::kF16, 256},
    {WeightFormat::kSuper5, Dtype::kF16, 256},
    {WeightFormat::kSuper6, Dtype::kF32, 256},
};
bool IsSuper(const Format& f) {
  return f.format >= WeightFormat::kSuper4;
}  // kSuper2: code_kernels_test.cc

float Round(Dtype dtype, float x, std::string* bytes) {
  uint16_t half = 0;
  switch (dtype) {
    case Dtype::kF32:
      bytes->append(reinterpret_cast<const char*>(&x), sizeof(x));
      return x;
    case Dtype::kF16:
      half = ToF16(x).bits;
      x = ToF32(F16{half});
      break;
    default:
      half = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
      x = ToF32(BF16{half});
  }
  bytes->append(reinterpret_cast<const char*>(&half), sizeof(half));
  return x;
}

TensorView View(Dtype dtype, std::vector<uint64_t> shape, const std::string& bytes) {
  // Unaligned, as in a file: the first byte is not the tensor's.
  return {dtype, std::move(shape), reinterpret_cast<const uint8_t*>(bytes.data()) + 1,
          bytes.size() - 1};
}

// Stored weights of an MLX checkpoint.
void MakeAffine(const Format& f, size_t outputs, size_t inputs, uint32_t seed, Made* made) {
  const uint32_t bits = f.format == WeightFormat::kAffine4 ? 4 : 8;
  const size_t groups = inputs / f.group;
  Stored& stored = made->stored;
  stored.affine = true;
  std::string words = "x", scales = "x", biases = "x";
  const std::vector<float> random = RandomFloats(outputs * inputs, seed);
  for (size_t i = 0; i < outputs * inputs; ++i) {
    stored.u.push_back(std::bit_cast<int32_t>(random[i]) >> 3 & ((1 << bits) - 1));
  }
  for (size_t i = 0; i < stored.u.size(); i += 8 / bits) {
    words.push_back(
        static_cast<char>(bits == 8 ? stored.u[i] : stored.u[i] | stored.u[i + 1] << 4));
  }
  // Negative scales come about half of the time.
  for (const float x : RandomFloats(outputs * groups, seed + 1, 0.01f)) {
    stored.s.push_back(Round(f.scale, x, &scales));
  }
  for (const float x : RandomFloats(outputs * groups, seed + 2, 0.2f)) {
    stored.b.push_back(Round(f.scale, x, &biases));
  }
  ThreadPool pool(2, 2);
  const AffineTensor tensor = {.weight = View(Dtype::kU32, {outputs, inputs * bits / 32}, words),
                               .scales = View(f.scale, {outputs, groups}, scales),
                               .biases = View(f.scale, {outputs, groups}, biases),
                               .bits = bits,
                               .group = f.group};
  ASSERT_TRUE(made->matrix.PackAffine(tensor, &pool).ok());
  stored.shape = made->matrix.view();
}

void MakeQuantized(const Format& f, size_t outputs, size_t inputs, uint32_t seed, Made* made) {
  Stored& stored = made->stored;
  stored.affine = f.format == WeightFormat::kAffine4;
  stored.zero = stored.affine ? 0 : 128;
  const std::vector<float> w = RandomFloats(outputs * inputs, seed, 0.3f);
  std::string bytes = "x";
  bytes.append(reinterpret_cast<const char*>(w.data()), w.size() * sizeof(float));
  ThreadPool pool(2, 2);
  ASSERT_TRUE(
      made->matrix
          .Quantize(View(Dtype::kF32, {outputs, inputs}, bytes), f.format, *ScalarKernels(), &pool)
          .ok());
  stored.shape = made->matrix.view();
  for (size_t n = 0; n < outputs; ++n) {
    for (size_t first = 0; first < inputs; first += stored.shape.group) {
      const size_t count = std::min<size_t>(stored.shape.group, inputs - first);
      uint8_t u[128];
      float scale = 0;
      F16 s16, b16;
      if (stored.affine) {
        QuantizeInt4(w.data() + n * inputs + first, count, &s16, &b16, u);
        stored.s.push_back(ToF32(s16));
        stored.b.push_back(ToF32(b16));
      } else {
        QuantizeInt8(w.data() + n * inputs + first, count, &scale, u);
        stored.s.push_back(scale);
        stored.b.push_back(0);
      }
      stored.u.insert(stored.u.end(), u, u + count);
    }
  }
}

// Blocks of a GGUF file. `byte`: all integers consist of it, and those that multiply them are as
// far from 0 as can be.
void MakeSuper(const Format& f, size_t outputs, size_t inputs, uint32_t seed, Made* made,
               std::optional<uint8_t> byte = std::nullopt) {
  const Dtype dtype = f.format == WeightFormat::kSuper4   ? Dtype::kQ4_K
                      : f.format == WeightFormat::kSuper5 ? Dtype::kQ5_K
                                                          : Dtype::kQ6_K;
  const bool six = dtype == Dtype::kQ6_K;
  std::string bytes(1 + TensorBytes(dtype, std::vector<uint64_t>{outputs, inputs}).value(), 'x');
  const std::vector<float> random = RandomFloats(bytes.size(), seed);
  for (size_t i = 1; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(std::bit_cast<int32_t>(random[i]) >> 3);
  }
  const std::vector<float> scales = RandomFloats(bytes.size(), seed + 1, 0.01f);
  const size_t block_bytes = BlockBytes(dtype);
  for (size_t at = 1; at < bytes.size(); at += block_bytes) {
    if (byte) {
      std::memset(bytes.data() + at, *byte, block_bytes);
      std::memset(bytes.data() + at + (six ? 192 : 0), six ? 0x80 : 0xff, 16);
    }
    const uint16_t halves[] = {ToF16(scales[at]).bits, ToF16(scales[at + 1]).bits};
    std::memcpy(bytes.data() + at + (six ? 208 : 0), halves, six ? 2 : 4);
  }
  ThreadPool pool(2, 2);
  const TensorView tensor = View(dtype, {outputs, inputs}, bytes);
  ASSERT_TRUE(made->matrix.PackBlocks(tensor, &pool).ok());
  Stored& stored = made->stored;
  stored = Stored();
  stored.shape = made->matrix.view();
  stored.affine = !six;
  stored.zero = six ? 32 : 0;
  for (size_t n = 0; n < outputs; ++n) {
    for (size_t i = 0; i < inputs / kSuperBlock; ++i) {
      const IntegerSuperBlock block =
          DecodeSuperBlock(dtype, tensor.data + n * StoredRowBytes(dtype, inputs), i);
      stored.u.insert(stored.u.end(), block.u, block.u + kSuperBlock);
      if (six) {
        stored.c.insert(stored.c.end(), block.c, block.c + 16);
        stored.s.push_back(block.scale);
        stored.b.push_back(0);
        continue;
      }
      for (size_t j = 0; j < 8; ++j) {
        stored.s.push_back(block.scale * static_cast<float>(block.c[j]));
        stored.b.push_back(-(block.minimum * static_cast<float>(block.m[j])));
      }
    }
  }
}

void Make(const Format& f, size_t outputs, size_t inputs, uint32_t seed, Made* made) {
  if (IsSuper(f)) {
    MakeSuper(f, outputs, inputs, seed, made);
  } else if (f.group == 0) {
    MakeQuantized(f, outputs, inputs, seed, made);
  } else {
    MakeAffine(f, outputs, inputs, seed, made);
  }
}

// kernels.h, "Product of quantized weights and int8 activations".
float Int8Product(const Stored& w, size_t output, const float* x) {
  float acc = 0;
  float part = 0;
  float part_sum = 0;
  const size_t inputs = w.shape.inputs;
  for (size_t first = 0; first < inputs; first += 32) {
    const size_t count = std::min<size_t>(32, inputs - first);
    float a = 0;
    bool number = true;
    for (size_t k = first; k < first + count; ++k) {
      number &= std::isfinite(x[k]);
      a = std::max(a, std::fabs(x[k]));
    }
    float d = a / 127.0f;
    int64_t dot = 0;
    int64_t sum = 0;
    if (!number) {
      d = std::numeric_limits<float>::quiet_NaN();
    } else if (a < 0x1p-100f) {
      d = 0;
    } else {
      const float factor = 127.0f / a;
      for (size_t k = first; k < first + count; ++k) {
        const int64_t q = std::llrint(x[k] * factor);
        dot += q * w.integer(output, k);
        sum += q;
      }
    }
    const bool begins = first % w.group() == 0;
    part = std::fma(static_cast<float>(dot), d, begins ? 0 : part);
    part_sum = begins ? d * static_cast<float>(sum) : part_sum + d * static_cast<float>(sum);
    if ((first + 32) % w.group() == 0 || first + 32 >= inputs) {
      const size_t group = output * w.groups() + first / w.group();
      acc = std::fma(part, w.s[group], acc);
      acc = w.affine ? std::fma(part_sum, w.b[group], acc) : acc;
    }
  }
  return acc;
}

float Weight(const Stored& w, size_t output, size_t k) {
  const size_t group = output * w.groups() + k / w.group();
  return std::fma(w.s[group], static_cast<float>(w.integer(output, k)), w.b[group]);
}

float FloatProduct(const Stored& w, size_t output, const float* x) {
  float acc = 0;
  for (size_t k = 0; k < w.shape.inputs; ++k) {
    acc = std::fma(x[k], Weight(w, output, k), acc);
  }
  return acc;
}

// All rows of x: [rows][outputs].
std::vector<float> PlainProducts(const Stored& w, const std::vector<float>& x, bool int8) {
  std::vector<float> out;
  for (size_t at = 0; at < x.size(); at += w.shape.inputs) {
    for (size_t n = 0; n < w.shape.outputs; ++n) {
      const float* const row = x.data() + at;
      out.push_back(int8 ? Int8Product(w, n, row) : FloatProduct(w, n, row));
    }
  }
  return out;
}

bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

class QuantKernelsTest : public ::testing::TestWithParam<size_t> {
 protected:
  const Kernels& kernels() const { return *RunnableTables()[GetParam()]; }

  // Multiplies, and compares with the plain program.
  void Check(const Made& made, const std::vector<float>& x, uint32_t rows, bool int8) {
    Check(made, x, rows, int8, PlainProducts(made.stored, x, int8));
  }

  // The first `rows` of x, of all of which `plain` are the products.
  void Check(const Made& made, const std::vector<float>& x, uint32_t rows, bool int8,
             const std::vector<float>& plain) {
    const size_t outputs = made.stored.shape.outputs;
    const size_t inputs = made.stored.shape.inputs;
    const std::vector<uint8_t> packed = PackRowBlocks(kernels(), x, rows, inputs, int8);
    const bool add = rows % 2 == 0;
    const std::vector<float> bias = RandomFloats(outputs, rows);
    const size_t stride = outputs + 3;
    std::vector<float> out = RandomFloats(rows * stride, rows + 9);
    const std::vector<float> before = out;
    const MatmulArgs args{.weights = made.matrix.view(),
                          .packed = packed.data(),
                          .int8 = int8,
                          .rows = rows,
                          .bias = rows % 3 == 0 ? bias.data() : nullptr,
                          .out = out.data(),
                          .out_stride = stride,
                          .add = add};
    // In two parts, as two threads would.
    const size_t half = made.matrix.view().panels() / 2;
    kernels().matmul(args, half, made.matrix.view().panels());
    kernels().matmul(args, 0, half);
    for (uint32_t r = 0; r < rows; ++r) {
      for (size_t n = 0; n < stride; ++n) {
        float y = before[r * stride + n];
        if (n < outputs) {
          float acc = plain[r * outputs + n];
          acc = rows % 3 == 0 ? acc + bias[n] : acc;
          y = add ? y + acc : acc;
        }
        ASSERT_TRUE(SameBits(out[r * stride + n], y))
            << "[" << outputs << ", " << inputs << "] row " << r << " of " << rows << " output "
            << n << ": " << out[r * stride + n] << " for " << y << (int8 ? " int8" : " float");
      }
    }
  }
};

TEST_P(QuantKernelsTest, EveryFormatGivesThePlainProgramsBits) {
#ifdef STRATA_SANITIZED
  constexpr bool kAll = false;  // They would take many minutes.
#else
  constexpr bool kAll = true;
#endif
  // All that any table takes as one block, the fewest that none does, and more.
  constexpr uint32_t kMostRows = 29;
  constexpr uint32_t kRows[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,
                                10, 11, 12, 13, 14, 15, 16, 17, kMostRows};
  uint32_t seed = 1;
  for (const Format& format : kFormats) {
    SCOPED_TRACE(::testing::PrintToString(format));
    // The last two are five and nine panels: Check's second part has an odd number, of which one is
    // left where blocks of rows take panels by twos.
    for (const size_t outputs : {1u, 16u, 17u, 70u, 131u}) {
      for (size_t inputs : {32u, 65u, 128u, 256u, 301u}) {
        if (!kAll && (outputs % 16 == 0 || outputs > 100 || inputs % 128 == 0)) {
          continue;
        }
        if (format.group != 0) {
          inputs = std::max<size_t>(1, inputs / format.group) * format.group;
        }
        Made made;
        ASSERT_NO_FATAL_FAILURE(Make(format, outputs, inputs, seed, &made));
        seed += 10;
        // Most of the time is the plain program's: once for all numbers of rows.
        const std::vector<float> x = RandomFloats(kMostRows * inputs, seed++, 3);
        for (const bool int8 : {true, false}) {
          const std::vector<float> plain = PlainProducts(made.stored, x, int8);
          for (const uint32_t rows : kRows) {
            ASSERT_NO_FATAL_FAILURE(Check(made, x, rows, int8, plain));
          }
        }
      }
    }
  }
}

TEST_P(QuantKernelsTest, ExtremesOfTheStoredValuesDoNotSaturate) {
  for (const Format& format : kFormats) {
    SCOPED_TRACE(::testing::PrintToString(format));
    Made made;
    ASSERT_NO_FATAL_FAILURE(Make(format, 32, 256, 3, &made));
    if (format.group == 0) {
      continue;  // Its values cannot be chosen.
    }
    if (IsSuper(format)) {
      // Of kSuper6 0 is farthest from its zero, and 63 the most to be added up before that counts.
      for (const uint8_t byte : {0x00, 0xff}) {
        made.matrix = PackedMatrix();
        ASSERT_NO_FATAL_FAILURE(MakeSuper(format, 32, 256, 3, &made, byte));
        for (const float sign : {1.0f, -1.0f}) {
          ASSERT_NO_FATAL_FAILURE(Check(made, std::vector<float>(9 * 256, sign * 2), 9, true));
        }
      }
      continue;
    }
    // All weights the largest stored one, or zero, and all activations +-127.
    const unsigned bits = format.format == WeightFormat::kAffine4 ? 4 : 8;
    for (const char byte : {'\xff', '\0'}) {
      std::string words(1 + 32 * 256 * bits / 8, byte);
      std::string scales = "x", biases = "x";
      made.stored.u.assign(32 * 256, byte == '\0' ? 0 : (1 << bits) - 1);
      for (size_t i = 0; i < made.stored.s.size(); ++i) {
        made.stored.s[i] = Round(format.scale, 0.5f, &scales);
        made.stored.b[i] = Round(format.scale, -0.25f, &biases);
      }
      ThreadPool pool(1, 1);
      const uint64_t groups = made.stored.groups();
      made.matrix = PackedMatrix();
      ASSERT_TRUE(made.matrix
                      .PackAffine({.weight = View(Dtype::kU32, {32, words.size() / 128}, words),
                                   .scales = View(format.scale, {32, groups}, scales),
                                   .biases = View(format.scale, {32, groups}, biases),
                                   .bits = bits,
                                   .group = format.group},
                                  &pool)
                      .ok());
      for (const float even : {1.0f, -1.0f}) {
        for (const float odd : {1.0f, -1.0f}) {
          constexpr uint32_t kMostRows = 151;
          std::vector<float> x(kMostRows * 256);
          for (size_t i = 0; i < x.size(); ++i) {
            x[i] = 2 * (i % 2 == 0 ? even : odd);
          }
          const std::vector<float> plain = PlainProducts(made.stored, x, true);
          for (const uint32_t rows : {9u, kMostRows}) {
            ASSERT_NO_FATAL_FAILURE(Check(made, x, rows, true, plain));
          }
        }
      }
    }
  }
}

TEST_P(QuantKernelsTest, ActivationsRoundToEvenAndTinyOnesAreZero) {
  Made made;
  ASSERT_NO_FATAL_FAILURE(Make(kFormats[0], 16, 96, 5, &made));
  std::vector<float> x(96, 0.0f);
  for (int i = 0; i < 32; ++i) {
    x[i] = static_cast<float>(i) - 15.5f;  // Halves, once scaled by 127 / 127.
  }
  x[0] = 127;
  for (int i = 32; i < 64; ++i) {
    x[i] = 0x1p-101f;
  }
  for (int i = 64; i < 96; ++i) {
    x[i] = 0x1p-100f * static_cast<float>(i - 63);
  }
  Check(made, x, 1, true);
}

TEST_P(QuantKernelsTest, WhatIsNoNumberStaysVisible) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    Made made;
    ASSERT_NO_FATAL_FAILURE(Make(kFormats[0], 16, 64, 5, &made));
    std::vector<float> x = RandomFloats(3 * 64, 8);
    x[64 + 40] = bad;
    ASSERT_NO_FATAL_FAILURE(Check(made, x, 3, true));
    EXPECT_TRUE(std::isnan(Int8Product(made.stored, 0, x.data() + 64)));
    EXPECT_FALSE(std::isnan(Int8Product(made.stored, 0, x.data())))
        << "the other rows are unharmed";
  }
}

// As threads do that quantize what each of them computed.
TEST_P(QuantKernelsTest, RowsQuantizedByPartsAreWhatTheyAreAtOnce) {
  constexpr uint8_t kUnwritten = 0xee;
  for (const size_t inputs : {20u, 64u, 520u, 1000u, 1536u}) {
    const size_t blocks = (inputs + kQuantBlock - 1) / kQuantBlock;
    for (uint32_t rows = 1; rows <= kernels().block_rows.alone; ++rows) {
      const std::vector<float> x = RandomFloats(rows * inputs, rows);
      const size_t bytes = rows * kernels().quantized_row_bytes(inputs);
      std::vector<uint8_t> whole(bytes, kUnwritten);
      kernels().quantize_rows(x.data(), inputs, rows, inputs, whole.data());
      std::vector<uint8_t> parts(bytes, kUnwritten);
      // The second half first; of each half a block, then what is left.
      for (const auto& [from, to] :
           {std::pair(blocks / 2, blocks), std::pair(size_t{0}, blocks / 2)}) {
        const size_t cut = std::min(from + 1, to);
        for (const auto& [first, end] : {std::pair(from, cut), std::pair(cut, to)}) {
          std::vector<float> own(x.size(), std::numeric_limits<float>::quiet_NaN());
          for (uint32_t r = 0; r < rows; ++r) {
            const size_t k = r * inputs + first * kQuantBlock;
            const size_t count = std::min(end * kQuantBlock, inputs) - first * kQuantBlock;
            std::copy_n(x.begin() + k, first < end ? count : 0, own.begin() + k);
          }
          kernels().quantize_part(own.data(), inputs, rows, inputs, first, end, parts.data());
        }
      }
      ASSERT_EQ(parts, whole) << rows << " rows of " << inputs;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, QuantKernelsTest, ::testing::Range<size_t>(0, RunnableTables().size()),
                         [](const auto& info) { return TableName(RunnableTables()[info.param]); });

TEST(QuantizeTest, Int8IsWithinHalfAStepAndKeepsTheLargest) {
  const std::vector<float> w = RandomFloats(128, 3);
  float scale = 0;
  uint8_t u[128];
  QuantizeInt8(w.data(), w.size(), &scale, u);
  int most = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    EXPECT_LE(std::fabs(w[i] - scale * static_cast<float>(u[i] - 128)), 0.5001f * scale);
    EXPECT_GE(u[i], 1);
    most = std::max(most, std::abs(u[i] - 128));
  }
  EXPECT_EQ(most, 127);
}

TEST(QuantizeTest, Int4MeetsZeroAndTheLargerEnd) {
  for (const float shift : {-0.4f, 0.0f, 0.7f}) {
    std::vector<float> w = RandomFloats(64, 4);
    for (float& x : w) {
      x += shift;
    }
    w[5] = 0;
    F16 scale, bias;
    uint8_t u[64];
    QuantizeInt4(w.data(), w.size(), &scale, &bias, u);
    const float s = ToF32(scale);
    const float b = ToF32(bias);
    EXPECT_NEAR(std::fma(s, u[5], b), 0, 0.01f * std::fabs(s));
    for (size_t i = 0; i < w.size(); ++i) {
      EXPECT_LE(std::fabs(w[i] - std::fma(s, u[i], b)), 1.01f * std::fabs(s));
    }
  }
}

TEST(QuantizeTest, ZerosAndWhatIsNoNumberAreToldApart) {
  std::vector<float> w(64, 0.0f);
  float scale = 1;
  F16 s, b;
  uint8_t u[64];
  QuantizeInt8(w.data(), 64, &scale, u);
  EXPECT_EQ(scale, 0);
  EXPECT_EQ(u[0], 128);
  QuantizeInt4(w.data(), 64, &s, &b, u);
  EXPECT_EQ(std::fma(ToF32(s), u[0], ToF32(b)), 0);
  w[9] = std::numeric_limits<float>::infinity();
  QuantizeInt8(w.data(), 64, &scale, u);
  EXPECT_TRUE(std::isnan(scale));
  QuantizeInt4(w.data(), 64, &s, &b, u);
  EXPECT_TRUE(std::isnan(ToF32(s)));
}

TEST(PackedMatrixTest, ReadsBackOneOutputOfEveryFormat) {
  for (const Format& format : kFormats) {
    Made made;
    ASSERT_NO_FATAL_FAILURE(Make(format, 21, 256, 3, &made));
    std::vector<float> row(256);
    for (const size_t output : {0u, 15u, 16u, 20u}) {
      made.matrix.ReadOutput(output, row.data());
      for (size_t k = 0; k < row.size(); ++k) {
        ASSERT_EQ(row[k], Weight(made.stored, output, k)) << output << " " << k;
      }
    }
  }
}

}  // namespace
}  // namespace strata::cpu
