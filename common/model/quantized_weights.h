// Formats of weights that a worker quantizes while it loads them, as far as others must know.
#ifndef STRATA_COMMON_MODEL_QUANTIZED_WEIGHTS_H_
#define STRATA_COMMON_MODEL_QUANTIZED_WEIGHTS_H_

#include <cstdint>

namespace strata {

// Inputs that share a scale. 8 bits need fewer scales.
inline constexpr uint32_t kInt8Group = 128;
inline constexpr uint32_t kInt4Group = 64;
// Bytes of what a group has beside its values, for each output: a float32 scale; a float16 scale
// and bias.
inline constexpr uint32_t kGroupExtraBytes = 4;

// What weights stored as scale * q + bias may have: bits of q, and inputs to a scale.
inline constexpr bool IsAffineBits(uint64_t bits) { return bits == 4 || bits == 8; }
inline constexpr bool IsAffineGroup(uint64_t group) {
  return group == 32 || group == 64 || group == 128;
}

// Bytes of a quantized matrix: outputs in panels of 16, inputs in blocks of 32.
inline constexpr uint64_t QuantizedMatrixBytes(uint64_t outputs, uint64_t inputs, uint32_t bits) {
  const uint64_t group = bits == 4 ? kInt4Group : kInt8Group;
  const uint64_t padded = (inputs + 31) / 32 * 32;
  const uint64_t groups = (inputs + group - 1) / group;
  return (outputs + 15) / 16 * 16 * (padded * bits / 8 + groups * kGroupExtraBytes);
}

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_QUANTIZED_WEIGHTS_H_
