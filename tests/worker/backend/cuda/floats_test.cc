// The device's arithmetic of single numbers against the CPU's.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/model/narrow_floats.h"
#include "common/numerics/math.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cuda/kernels/floats-inl.h"

namespace strata::cuda {
namespace {

// Numbers of all sizes: every so many floats by their bits, and the ends.
template <typename Function>
void ForFloats(const Function& function) {
  constexpr uint32_t kStep = 9973;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += kStep) {
    function(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (const float x :
       {0.0f, -0.0f, 65504.0f, 65519.99f, 65520.0f, 0x1p-14f, 0x1p-24f, 0x1p-25f,
        std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    function(x);
  }
}

// Of what is no number the payload may differ.
void ExpectSame(float expected, float got, float of) {
  if (std::isnan(expected) && std::isnan(got)) {
    return;
  }
  ASSERT_EQ(std::bit_cast<uint32_t>(expected), std::bit_cast<uint32_t>(got)) << of;
}

TEST(CudaFloats, ExponentialAndTangentAreTheCpus) {
  ForFloats([](float x) {
    ExpectSame(ExpF32(x), Exp(x), x);
    ExpectSame(TanhF32(x), Tanh(x), x);
  });
}

TEST(CudaFloats, RoundingIsTheCpus) {
  ForFloats([](float x) {
    ASSERT_EQ(cpu::ToF16(x).bits, FloatToHalf(x)) << x;
    ExpectSame(strata::RoundToBfloat16(x), RoundToBfloat16(x), x);
    ExpectSame(strata::RoundToHalf(x), RoundToHalf(x), x);
  });
}

TEST(CudaFloats, NarrowFloatsAreTheCpus) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    ExpectSame(cpu::ToF32(cpu::F16{half}), HalfToFloat(half), 0);
    ExpectSame(cpu::ToF32(cpu::BF16{half}), Bfloat16ToFloat(half), 0);
  }
  for (uint32_t bits = 0; bits < 255; ++bits) {
    const auto byte = static_cast<uint8_t>(bits);
    ExpectSame(ExponentToF32(byte), ExponentToFloat(byte), 0);
    if ((byte & 127u) != 127) {  // The kernels count this one as 480, files have no number there.
      ExpectSame(Float8ToF32(byte), Float8ToFloat(byte), 0);
    }
  }
}

}  // namespace
}  // namespace strata::cuda
