// Every table of kernels that this machine runs gives, bit for bit, what kernels.h says.
#include "worker/backend/cpu/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "common/numerics/math.h"
#include "tests/worker/backend/row_blocks.h"
#include "tests/worker/backend/tables.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/weights/packed_matrix.h"

namespace strata::cpu {
namespace {

std::vector<float> RandomFloats(size_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::vector<float> out(count);
  for (float& x : out) {
    x = scale * (static_cast<float>(random()) * 0x1p-31f - 1.0f);
  }
  return out;
}

// Row-major, in `dtype`; `values` become what is stored.
std::string Encode(Dtype dtype, std::vector<float>* values) {
  std::string bytes;
  for (float& x : *values) {
    if (dtype == Dtype::kF32) {
      bytes.append(reinterpret_cast<const char*>(&x), sizeof(x));
      continue;
    }
    const uint16_t bits = dtype == Dtype::kF16
                              ? ToF16(x).bits
                              : static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
    x = dtype == Dtype::kF16 ? ToF32(F16{bits}) : ToF32(BF16{bits});
    bytes.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  return bytes;
}

float TreeSum(const float* lanes) {
  float t[16];
  std::copy(lanes, lanes + 16, t);
  for (int i = 0; i < 8; ++i) t[i] = t[i] + t[i + 8];
  for (int i = 0; i < 4; ++i) t[i] = t[i] + t[i + 4];
  for (int i = 0; i < 2; ++i) t[i] = t[i] + t[i + 2];
  return t[0] + t[1];
}

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

class KernelsTest : public ::testing::TestWithParam<size_t> {
 protected:
  const Kernels& kernels() const { return *RunnableTables()[GetParam()]; }
};

TEST_P(KernelsTest, MatmulIsOneFmaChainAnOutput) {
  ThreadPool pool(1, 1);
  uint32_t seed = 1;
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
    for (const size_t outputs : {1u, 15u, 16u, 17u, 64u, 131u, 300u}) {
      for (const size_t inputs : {1u, 5u, 64u, 97u}) {
        std::vector<float> w = RandomFloats(outputs * inputs, seed++);
        // Unaligned, as in a file.
        const std::string bytes = "x" + Encode(dtype, &w);
        PackedMatrix matrix;
        ASSERT_TRUE(matrix
                        .Pack({dtype,
                               {outputs, inputs},
                               reinterpret_cast<const uint8_t*>(bytes.data()) + 1,
                               bytes.size() - 1},
                              &pool)
                        .ok());
        const std::vector<float> bias = RandomFloats(outputs, seed++);
        for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 31u}) {
          const std::vector<float> x = RandomFloats(rows * inputs, seed++);
          const std::vector<uint8_t> packed = PackRowBlocks(kernels(), x, rows, inputs, false);
          const bool add = rows % 2 == 0;
          const bool biased = rows % 3 == 0;
          const size_t stride = outputs + 3;
          std::vector<float> out = RandomFloats(rows * stride, seed++);
          const std::vector<float> before = out;
          const MatmulArgs args{.weights = matrix.view(),
                                .packed = packed.data(),
                                .rows = rows,
                                .bias = biased ? bias.data() : nullptr,
                                .out = out.data(),
                                .out_stride = stride,
                                .add = add};
          // In two parts, as two threads would.
          const size_t half = matrix.view().panels() / 2;
          kernels().matmul(args, half, matrix.view().panels());
          kernels().matmul(args, 0, half);
          for (uint32_t r = 0; r < rows; ++r) {
            for (size_t n = 0; n < stride; ++n) {
              float y = before[r * stride + n];
              if (n < outputs) {
                float acc = 0.0f;
                for (size_t k = 0; k < inputs; ++k) {
                  acc = std::fma(x[r * inputs + k], w[n * inputs + k], acc);
                }
                acc = biased ? acc + bias[n] : acc;
                y = add ? y + acc : acc;
              }
              ASSERT_TRUE(SameBits(out[r * stride + n], y))
                  << DtypeName(dtype) << " [" << outputs << ", " << inputs << "] row " << r
                  << " of " << rows << " output " << n;
            }
          }
        }
      }
    }
  }
}

TEST_P(KernelsTest, RmsNormSumsByTheFixedTree) {
  for (const size_t n : {1u, 15u, 16u, 40u, 64u, 192u, 1000u}) {
    for (const float plus : {0.0f, 1.0f}) {
      const std::vector<float> x = RandomFloats(n, 7, 3.0f);
      const std::vector<float> weight = RandomFloats(n, 8);
      float lanes[16] = {};
      for (size_t k = 0; k < n; ++k) {
        lanes[k % 16] = std::fma(x[k], x[k], lanes[k % 16]);
      }
      const float factor = 1.0f / std::sqrt(TreeSum(lanes) / static_cast<float>(n) + 1e-5f);
      std::vector<float> out(n);
      kernels().rms_norm(x.data(), weight.data(), n, 1e-5f, plus, out.data());
      for (size_t k = 0; k < n; ++k) {
        EXPECT_TRUE(SameBits(out[k], x[k] * factor * (plus + weight[k]))) << n << " " << k;
      }
    }
  }
}

// Every 257th float32, infinities and NaNs among them, and all about the limits.
std::vector<float> FloatsOfAllSizes(std::initializer_list<float> limits) {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 257) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (const float limit : limits) {
    float up = limit;
    float down = limit;
    for (int i = 0; i < 1000; ++i) {
      x.push_back(up);
      x.push_back(down);
      up = std::nextafter(up, INFINITY);
      down = std::nextafter(down, -INFINITY);
    }
  }
  return x;
}

// How many of the results are not function(x), bit for bit but for what NaN it is.
template <typename Function>
size_t Differing(const std::vector<float>& x, const std::vector<float>& out, Function function) {
  size_t wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const float y = function(x[i]);
    wrong += !(SameBits(out[i], y) || (y != y && out[i] != out[i]));
  }
  return wrong;
}

TEST_P(KernelsTest, ExpIsTheScalarExp) {
  const std::vector<float> x =
      FloatsOfAllSizes({88.72284f, -87.33654f, 0.0f, -0.0f, 0.34657359f, -0.34657359f});
  std::vector<float> out(x.size());
  kernels().exp(x.data(), x.size(), out.data());
  EXPECT_EQ(Differing(x, out, ExpF32), 0u);
}

TEST_P(KernelsTest, SoftCapIsCapTimesTheScalarTanh) {
  const std::vector<float> x = FloatsOfAllSizes({0.0f, -0.0f, 0.625f, -0.625f, 10.0f, -10.0f});
  for (const float cap : {1.0f, 30.0f}) {
    std::vector<float> out = x;
    kernels().soft_cap(out.data(), out.size(), cap);
    EXPECT_EQ(Differing(x, out, [cap](float y) { return cap * TanhF32(y / cap); }), 0u) << cap;
  }
}

TEST_P(KernelsTest, SwiGluDivides) {
  for (const size_t n : {1u, 16u, 50u}) {
    const std::vector<float> gate = RandomFloats(n, 3, 100.0f);
    const std::vector<float> up = RandomFloats(n, 4);
    std::vector<float> out = gate;
    kernels().swiglu(out.data(), up.data(), n, out.data());
    for (size_t k = 0; k < n; ++k) {
      EXPECT_TRUE(SameBits(out[k], gate[k] / (1.0f + ExpF32(0.0f - gate[k])) * up[k])) << gate[k];
    }
  }
}

TEST_P(KernelsTest, GeGluIsGeluByTanh) {
  for (const size_t n : {1u, 16u, 5000u}) {
    std::vector<float> gate = RandomFloats(n, 3, 12.0f);
    const std::vector<float> up = RandomFloats(n, 4);
    gate[n / 2] = n == 16 ? -1e30f : 1e30f;
    std::vector<float> out = gate;
    kernels().geglu(out.data(), up.data(), n, out.data());
    for (size_t k = 0; k < n; ++k) {
      const float x = gate[k];
      const float e = x * std::fma(x * x, kGeluCubic, kGeluLinear);
      EXPECT_TRUE(SameBits(out[k], x / (1.0f + ExpF32(e)) * up[k])) << x;
      const double u = std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * std::pow(x, 3.0));
      const double gelu = 0.5 * x * (1.0 + std::tanh(u));
      EXPECT_NEAR(out[k], gelu * up[k], 5e-7 * std::max(1.0, std::abs(gelu))) << x;
    }
  }
}

TEST_P(KernelsTest, AClampedProductIsThatOfWhatIsWithinTheLimit) {
  constexpr float kLimit = 2.5f;
  for (const size_t n : {1u, 16u, 5000u}) {
    const float gain = n == 16 ? 0.5f : 1.702f;
    std::vector<float> gate = RandomFloats(n, 3, 12.0f);
    std::vector<float> up = RandomFloats(n, 4, 5.0f);
    gate[n / 2] = n == 16 ? -1e30f : 1e30f;
    gate[n / 3] = up[n / 4] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> out = gate;
    kernels().clamped_swiglu(out.data(), up.data(), n, kLimit, gain, out.data());
    for (size_t k = 0; k < n; ++k) {
      const float x = gate[k] > kLimit ? kLimit : gate[k];
      const float u = up[k] > kLimit ? kLimit : up[k] < -kLimit ? -kLimit : up[k];
      const float expected = x / (1.0f + ExpF32(x * -gain)) * (u + 1.0f);
      EXPECT_TRUE(std::isnan(expected) ? std::isnan(out[k]) : SameBits(out[k], expected))
          << gate[k] << " " << up[k];
    }
  }
}

TEST_P(KernelsTest, HalvesBecomeTheSameFloats) {
  std::vector<uint16_t> halves(65536);
  for (uint32_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<uint16_t>(i);
  }
  std::vector<float> f16(halves.size());
  std::vector<float> bf16(halves.size());
  kernels().from_f16(halves.data(), halves.size(), f16.data());
  kernels().from_bf16(halves.data(), halves.size(), bf16.data());
  for (uint32_t i = 0; i < halves.size(); ++i) {
    EXPECT_TRUE(SameBits(f16[i], ToF32(F16{halves[i]}))) << i;
    EXPECT_TRUE(SameBits(bf16[i], ToF32(BF16{halves[i]}))) << i;
  }
}

TEST_P(KernelsTest, FloatsBecomeTheSameHalves) {
  std::vector<float> x;
  // All halves, the ties between them, and what is just beside either.
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    const float half = ToF32(F16{static_cast<uint16_t>(i)});
    const float next = i == 0x7bff ? 65536.0f : ToF32(F16{static_cast<uint16_t>(i + 1)});
    for (const float y : {half, half + (next - half) / 2}) {
      for (const float z : {y, std::nextafter(y, 0.0f), std::nextafter(y, INFINITY)}) {
        x.push_back(z);
        x.push_back(-z);
      }
    }
  }
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  std::vector<uint16_t> out(x.size());
  kernels().to_f16(x.data(), x.size(), out.data());
  size_t wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    wrong += out[i] != ToF16(x[i]).bits;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST_P(KernelsTest, AppendedKeysAreTransposedAndValuesAreNot) {
  for (const bool f16 : {false, true}) {
    for (const uint32_t head_dim : {8u, 24u, 64u}) {
      const size_t element = f16 ? 2 : 4;
      const size_t value_bytes = head_dim * 16 * element;
      const size_t padded = PaddedHeadDim(head_dim);
      std::vector<uint8_t> page(value_bytes + padded * 16 * element, 0);
      std::vector<std::vector<float>> k, v;
      for (uint32_t slot = 0; slot < 16; ++slot) {
        k.push_back(RandomFloats(head_dim, 100 + slot));
        v.push_back(RandomFloats(head_dim, 200 + slot, 1e-5f));
        kernels().append_kv(k[slot].data(), v[slot].data(), head_dim, slot, f16, page.data(),
                            value_bytes);
      }
      const auto at = [&](const uint8_t* base, size_t index) {
        if (f16) {
          return ToF32(reinterpret_cast<const F16*>(base)[index]);
        }
        return reinterpret_cast<const float*>(base)[index];
      };
      const auto rounded = [&](float x) { return f16 ? ToF32(ToF16(x)) : x; };
      for (uint32_t slot = 0; slot < 16; ++slot) {
        for (uint32_t d = 0; d < head_dim; ++d) {
          EXPECT_EQ(at(page.data(), d * 16 + slot), rounded(k[slot][d]));
          EXPECT_EQ(at(page.data() + value_bytes, slot * padded + d), rounded(v[slot][d]));
        }
        for (size_t d = head_dim; d < padded; ++d) {
          EXPECT_EQ(at(page.data() + value_bytes, slot * padded + d), 0.0f);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, KernelsTest, ::testing::Range(size_t{0}, RunnableTables().size()),
                         [](const auto& info) { return TableName(RunnableTables()[info.param]); });

// Against arithmetic of another kind: the nearest half by exact comparison in double.
TEST(ConvertTest, HalvesRoundToTheNearestEven) {
  for (uint32_t i = 0; i < 0x7bff; ++i) {
    const F16 low{static_cast<uint16_t>(i)};
    const F16 high{static_cast<uint16_t>(i + 1)};
    const double a = ToF32(low);
    const double b = ToF32(high);
    ASSERT_EQ(a, std::ldexp(i < 0x400 ? i : 0x400 + (i & 0x3ff),
                            i < 0x400 ? -24 : static_cast<int>(i >> 10) - 25));
    const float tie = static_cast<float>((a + b) / 2);
    EXPECT_EQ(ToF16(static_cast<float>(a)).bits, low.bits);
    EXPECT_EQ(ToF16(tie).bits, i % 2 == 0 ? low.bits : high.bits);
    EXPECT_EQ(ToF16(std::nextafter(tie, 0.0f)).bits, low.bits);
    EXPECT_EQ(ToF16(std::nextafter(tie, 1e9f)).bits, high.bits);
    EXPECT_EQ(ToF16(-tie).bits, ToF16(tie).bits | 0x8000);
  }
}

TEST(ConvertTest, HalvesSaturateAndKeepNan) {
  for (const float x : {65504.0f, 65519.0f, 65520.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(ToF16(x).bits, 0x7bff) << x;
    EXPECT_EQ(ToF16(-x).bits, 0xfbff) << x;
  }
  EXPECT_TRUE(std::isnan(ToF32(ToF16(NAN))));
}

}  // namespace
}  // namespace strata::cpu
