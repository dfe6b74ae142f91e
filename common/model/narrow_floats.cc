#include "common/model/narrow_floats.h"

#include <bit>
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

}  // namespace strata
