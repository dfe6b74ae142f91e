// Floats of 8 bits out of files, exactly, and rounding to floats of 16 bits.
#ifndef STRATA_COMMON_NARROW_FLOATS_H_
#define STRATA_COMMON_NARROW_FLOATS_H_

#include <cstdint>

namespace strata {

// A float of 8 bits, 4 of exponent and 3 of mantissa, without infinities.
float Float8ToF32(uint8_t bits);
// An exponent of 8 bits; the last of them means no number.
float ExponentToF32(uint8_t bits);

// To the nearest bfloat16, of two the even one; what is no number stays as it is.
float RoundToBfloat16(float value);
// Likewise to float16; what is beyond its range becomes infinite.
float RoundToHalf(float value);

}  // namespace strata

#endif  // STRATA_COMMON_NARROW_FLOATS_H_
