// What config.json says of matrices that are stored quantized.
#ifndef STRATA_COMMON_QUANTIZATION_SPEC_H_
#define STRATA_COMMON_QUANTIZATION_SPEC_H_

#include <cstdint>
#include <map>
#include <string>

namespace strata {

// Integers of `bits` bits, and a scale for each `group` inputs.
struct AffineSpec {
  uint32_t bits = 4;    // Or 8.
  uint32_t group = 64;  // 0: a scale for all inputs.
  bool operator==(const AffineSpec&) const = default;
};

// Whose format it is: MLX's, w = scale * q + bias; or one of common/stored_matrix.h.
enum class QuantizationMethod { kMlx, kAwq, kGptq, kPacked, kFloat8 };

// How the matrices of a checkpoint are stored that have scales; the others are floats.
struct QuantizationSpec {
  QuantizationMethod method = QuantizationMethod::kMlx;
  AffineSpec by_default;
  std::map<std::string, AffineSpec> by_path;  // kMlx: "model.layers.0.mlp.down_proj".
  bool has_zeros = true;                      // kPacked: else all are the middle.
  bool zeros_less_one = false;                // kGptq: how zeros are stored.
  // kGptq, kPacked: which group an input is of is stored, since groups are not in order.
  bool has_order = false;
  // kFloat8: outputs and inputs to a scale, 0 being all.
  uint32_t block_outputs = 0;
  uint32_t block_inputs = 0;
  bool operator==(const QuantizationSpec&) const = default;
};

}  // namespace strata

#endif  // STRATA_COMMON_QUANTIZATION_SPEC_H_
