// What config.json says of matrices that are stored quantized.
#ifndef STRATA_COMMON_MODEL_QUANTIZATION_SPEC_H_
#define STRATA_COMMON_MODEL_QUANTIZATION_SPEC_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/target_pattern.h"

namespace strata {

// Integers of `bits` bits, and a scale for each `group` inputs.
struct AffineSpec {
  uint32_t bits = 4;
  uint32_t group = 64;  // 0: a scale for all inputs.
  bool operator==(const AffineSpec&) const = default;
};

// Whose format it is; common/model/stored_matrix.h says what their tensors are.
enum class QuantizationMethod {
  kMlx,       // w = scale * q + bias.
  kMlxMxfp4,  // MLX's other modes.
  kMlxMxfp8,
  kMlxNvfp4,
  kAwq,
  kGptq,
  kPacked,    // Of compressed-tensors: integers in words,
  kIntegers,  // integers of a byte each,
  kMxfp4,     // and 4-bit floats.
  kNvfp4,
  kFloat8,    // A scale for each block, output or matrix; those of ModelOpt beside its 4-bit ones.
  kModelOpt,  // ModelOpt's NVFP4, or FP8: its tensors say which.
  kBitsAndBytes  // 4 bits, nf4 or fp4, or LLM.int8(): its tensors say which.
};

// How a matrix is stored.
struct StoredScheme {
  QuantizationMethod method = QuantizationMethod::kMlx;
  AffineSpec integers;
  bool has_zeros = true;        // kPacked, kIntegers: else all are the middle.
  bool zeros_less_one = false;  // kGptq: how zeros are stored.
  // kGptq, kPacked: which group an input is of is stored, since groups are not in order.
  bool has_order = false;
  // kFloat8, kIntegers: outputs and inputs to a scale, 0 being all.
  uint32_t block_outputs = 0;
  uint32_t block_inputs = 0;
  bool operator==(const StoredScheme&) const = default;
};

// The matrices that a target of compressed-tensors means: a path, a pattern of paths ("re:..."), or
// a class, "Linear" or "Embedding".
struct SchemeRule {
  TargetPattern target;
  StoredScheme scheme;
  bool operator==(const SchemeRule&) const = default;
};

// How the matrices of a checkpoint are stored that have scales; the others are floats.
struct QuantizationSpec : StoredScheme {        // By default.
  std::map<std::string, StoredScheme> by_path;  // MLX's: "model.layers.0.mlp.down_proj".
  // Where there are several schemes: the first that fits says; where none does there are floats.
  std::vector<SchemeRule> rules;
  bool operator==(const QuantizationSpec&) const = default;

  // Of the matrix at a path; null where it is stored as floats. `embedding`: whether it is looked
  // up, and no projection.
  const StoredScheme* At(const std::string& path, bool embedding) const;
  // function(scheme) for each.
  template <typename Function>
  void ForSchemes(const Function& function) const {
    if (rules.empty()) {
      function(static_cast<const StoredScheme&>(*this));
    }
    for (const auto& [path, scheme] : by_path) {
      function(scheme);
    }
    for (const SchemeRule& rule : rules) {
      function(rule.scheme);
    }
  }
};

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_QUANTIZATION_SPEC_H_
