// Formats of weights that a worker quantizes while it loads them, as far as others must know.
#ifndef STRATA_COMMON_QUANTIZED_WEIGHTS_H_
#define STRATA_COMMON_QUANTIZED_WEIGHTS_H_

#include <cstdint>
#include <string_view>
#include <vector>

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

// The matrices in a tensor "PATH.weight": [outputs, inputs], or of one expert after another
// [experts, outputs, inputs].
struct MatrixShape {
  uint64_t matrices = 0;  // 0: it is none.
  uint64_t outputs = 0;
  uint64_t inputs = 0;
};
inline MatrixShape MatrixShapeOf(std::string_view tensor, const std::vector<uint64_t>& shape) {
  if (!tensor.ends_with(".weight") || shape.size() < 2 || shape.size() > 3) {
    return {};
  }
  return {shape.size() == 3 ? shape[0] : 1, shape[shape.size() - 2], shape.back()};
}

// Bytes of a quantized matrix: outputs in panels of 16, inputs in blocks of 32.
inline constexpr uint64_t QuantizedMatrixBytes(uint64_t outputs, uint64_t inputs, uint32_t bits) {
  const uint64_t group = bits == 4 ? kInt4Group : kInt8Group;
  const uint64_t padded = (inputs + 31) / 32 * 32;
  const uint64_t groups = (inputs + group - 1) / group;
  return (outputs + 15) / 16 * 16 * (padded * bits / 8 + groups * kGroupExtraBytes);
}

}  // namespace strata

#endif  // STRATA_COMMON_QUANTIZED_WEIGHTS_H_
