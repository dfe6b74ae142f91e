#include "common/narrow_floats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace strata {

float Float8ToF32(uint8_t bits) {
  const uint32_t sign = (bits & 0x80u) << 24;
  const uint32_t exponent = (bits >> 3) & 15u;
  const uint32_t mantissa = bits & 7u;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 15 && mantissa == 7) {
    return std::bit_cast<float>(sign | 0x7fc00000u);
  }
  return std::bit_cast<float>(sign | (exponent + 120) << 23 | mantissa << 20);
}

float ExponentToF32(uint8_t bits) {
  if (bits == 255) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : uint32_t{bits} << 23);
}

float RoundToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) {
    return value;
  }
  return std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u);
}

float RoundToHalf(float value) {
  if (!(std::abs(value) < 65520.0f)) {
    return std::isnan(value) ? value : std::copysign(std::numeric_limits<float>::infinity(), value);
  }
  int exponent = 0;
  std::frexp(value, &exponent);
  const int least = std::max(exponent, -13) - 11;  // Of the last bit that it has.
  return std::ldexp(std::nearbyint(std::ldexp(value, -least)), least);
}

}  // namespace strata
