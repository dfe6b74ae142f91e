// Floats of 8 bits out of files, exactly, and rounding to floats of 16 bits.
#ifndef STRATA_COMMON_MODEL_NARROW_FLOATS_H_
#define STRATA_COMMON_MODEL_NARROW_FLOATS_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/model/code_books.h"

namespace strata {

// A float of 8 bits, 4 of exponent and 3 of mantissa, without infinities.
float Float8ToF32(uint8_t bits);
// An exponent of 8 bits; the last of them means no number.
float ExponentToF32(uint8_t bits);

// To the nearest bfloat16, of two the even one; what is no number stays as it is.
inline float RoundToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return value != value ? value
                        : std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u);
}
// Likewise to float16; what is beyond its range becomes infinite.
inline float RoundToHalf(float value) {
  const float magnitude = std::fabs(value);
  if (!(magnitude < 65520.0f)) {
    return value != value ? value : std::copysign(std::numeric_limits<float>::infinity(), value);
  }
  if (magnitude < 0x1p-14f) {  // Whole 2^-24ths, as those of floats about 1/2 are.
    return std::copysign((magnitude + 0.5f) - 0.5f, value);
  }
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1)) & 0xffffe000u);
}
inline float RoundTo(CodeRounding rounding, float value) {
  return rounding == CodeRounding::kBfloat16 ? RoundToBfloat16(value)
         : rounding == CodeRounding::kHalf   ? RoundToHalf(value)
                                             : value;
}

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_NARROW_FLOATS_H_
