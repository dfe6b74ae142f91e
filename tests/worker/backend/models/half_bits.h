// 16-bit floats as a checkpoint stores them, of values that are known to fit.
#ifndef STRATA_TESTS_WORKER_BACKEND_MODELS_HALF_BITS_H_
#define STRATA_TESTS_WORKER_BACKEND_MODELS_HALF_BITS_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace strata::testing {

// The nearest IEEE 754 binary16, ties to even, of a value of less than 65520.
inline uint16_t HalfBitsOf(float value) {
  const uint32_t sign = (std::bit_cast<uint32_t>(value) >> 16) & 0x8000u;
  const double size = std::abs(double{value});
  int exponent = -13;  // Of subnormal numbers: size is a part of 2^-13 * [0, 1/2).
  if (size >= 0x1p-14) {
    std::frexp(size, &exponent);
  }
  // The leading bit, which is not stored, counts one to the exponent.
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, 11 - exponent)));
  return static_cast<uint16_t>(sign | ((static_cast<uint32_t>(exponent + 13) << 10) + units));
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_MODELS_HALF_BITS_H_
