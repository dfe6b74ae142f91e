// The 16-bit formats, one value at a time. The vector forms give the same bits.
#ifndef STRATA_WORKER_BACKEND_CPU_KERNELS_CONVERT_H_
#define STRATA_WORKER_BACKEND_CPU_KERNELS_CONVERT_H_

#include <bit>
#include <cstdint>

#include "common/model/narrow_floats.h"

namespace strata::cpu {

// IEEE 754 binary16 and bfloat16 as stored.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

inline constexpr float kMaxF16 = 65504.0f;

inline float ToF32(float x) { return x; }

inline float ToF32(BF16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// Exact; a NaN becomes quiet and keeps its payload.
inline float ToF32(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1fu;
  const uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 0) {
    // mantissa * 2^-24, exact.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | mantissa << 13);
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Rounds to the nearest, ties to even, subnormals included; saturates at +-65504 (infinities too).
// A NaN stays one.
inline F16 ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477fe000u) {  // 65504 and above.
    half = 0x7bffu;
  } else if (magnitude >= 0x38800000u) {  // 2^-14 and above: normal.
    const uint32_t odd = (magnitude >> 13) & 1u;
    half = (magnitude - 0x38000000u + 0xfffu + odd) >> 13;
  } else {
    // Subnormal: adding 1/2 leaves the value in units of 2^-24 in the low bits, rounded by the
    // addition itself.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(shifted) - 0x3f000000u;
  }
  return F16{static_cast<uint16_t>(sign | half)};
}

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_KERNELS_CONVERT_H_
