// 16-bit floats out of files, which may lie at odd addresses.
#ifndef STRATA_COMMON_MODEL_HALF_H_
#define STRATA_COMMON_MODEL_HALF_H_

#include <bit>
#include <cstdint>

namespace strata {

// IEEE 754 binary16, exactly.
inline float HalfAt(const uint8_t* from) {
  const uint32_t half = from[0] | uint32_t{from[1]} << 8;
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

// bfloat16, likewise.
inline float Bfloat16At(const uint8_t* from) {
  return std::bit_cast<float>((from[0] | uint32_t{from[1]} << 8) << 16);
}

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_HALF_H_
