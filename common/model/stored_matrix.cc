#include "common/model/stored_matrix.h"

#include "absl/strings/str_cat.h"
#include "common/model/block_formats.h"
#include "common/model/quantized_weights.h"

namespace strata {
namespace {

constexpr uint64_t kPanelOutputs = 16;
// Groups that panels may have, the largest first: fewer scales are better.
constexpr uint32_t kPanelGroups[] = {128, 64, 32};

// "4g64"; without the group where that is all inputs.
std::string IntegersName(const AffineSpec& integers) {
  return integers.group == 0 ? absl::StrCat(integers.bits)
                             : absl::StrCat(integers.bits, "g", integers.group);
}

// "-128x128"; nothing where there is one scale.
std::string BlockName(const StoredScheme& scheme) {
  if (scheme.block_outputs + scheme.block_inputs == 0) {
    return "";
  }
  const auto size = [](uint32_t n) { return n == 0 ? "all" : absl::StrCat(n); };
  return absl::StrCat("-", size(scheme.block_outputs), "x", size(scheme.block_inputs));
}

}  // namespace

std::vector<const StoredPart*> StoredMatrix::Parts() const {
  std::vector<const StoredPart*> parts;
  for (const StoredPart* part : {&codes, &scales, &biases, &zeros, &order, &tensor_scale, &table,
                                 &state, &nested_scales, &nested_table}) {
    if (!part->name.empty()) {
      parts.push_back(part);
    }
  }
  return parts;
}

KeptForm StoredMatrix::Kept() const {
  const bool whole = inputs % kBlockPart == 0;
  if (as_floats || ordered || !whole) {
    return {};
  }
  const auto blocks = [&](Dtype format) {
    return inputs % BlockElements(format) == 0
               ? KeptForm{.kind = KeptForm::Kind::kBlocks, .bits = 4, .blocks = format}
               : KeptForm();
  };
  if (kind == StoredCodes::kFloat4) {
    return blocks(exponents            ? Dtype::kMXFP4
                  : tensor_factor == 0 ? Dtype::kNVFP4BF16
                                       : Dtype::kNVFP4);
  }
  if (kind == StoredCodes::kTable) {
    return blocks(state.name.ends_with("nf4") ? Dtype::kNF4 : Dtype::kFP4);
  }
  if (kind == StoredCodes::kUnsigned || kind == StoredCodes::kSigned) {
    for (const uint32_t kept : kPanelGroups) {
      if (group % kept == 0 && inputs % kept == 0) {
        return {.kind = KeptForm::Kind::kIntegers, .bits = bits <= 4 ? 4u : 8u, .group = kept};
      }
    }
  }
  return {};
}

uint64_t StoredMatrix::KeptBytes(uint32_t quantize) const {
  const uint64_t padded = (outputs + kPanelOutputs - 1) / kPanelOutputs * kPanelOutputs;
  const KeptForm kept = Kept();
  switch (kept.kind) {
    case KeptForm::Kind::kIntegers:
      return matrices * padded * (inputs * kept.bits / 8 + inputs / kept.group * 2 * sizeof(float));
    case KeptForm::Kind::kBlocks:
      return matrices * BlockMatrixBytes(kept.blocks, outputs, inputs);
    case KeptForm::Kind::kFloats:
      break;
  }
  return matrices * (quantize != 0 ? QuantizedMatrixBytes(outputs, inputs, quantize)
                                   : padded * inputs * sizeof(float));
}

std::string StoredFormatName(const StoredScheme& scheme) {
  const char* const order = scheme.has_order ? "-actorder" : "";
  switch (scheme.method) {
    case QuantizationMethod::kMlx:
      return "affine" + IntegersName(scheme.integers);
    case QuantizationMethod::kAwq:
      return "awq" + IntegersName(scheme.integers);
    case QuantizationMethod::kGptq:
      return absl::StrCat("gptq", IntegersName(scheme.integers), order);
    case QuantizationMethod::kPacked:
      return absl::StrCat("packed", IntegersName(scheme.integers), order);
    case QuantizationMethod::kIntegers:
      return absl::StrCat("integers", scheme.integers.bits, BlockName(scheme));
    case QuantizationMethod::kFloat8:
      return "fp8" + BlockName(scheme);
    case QuantizationMethod::kMlxMxfp4:
    case QuantizationMethod::kMxfp4:
      return "mxfp4";
    case QuantizationMethod::kMlxMxfp8:
      return "mxfp8";
    case QuantizationMethod::kMlxNvfp4:
    case QuantizationMethod::kNvfp4:
      return "nvfp4";
    case QuantizationMethod::kModelOpt:
      return "modelopt";
    case QuantizationMethod::kBitsAndBytes:
      return "bitsandbytes";
  }
  return "";
}

std::string StoredFormatName(const StoredMatrix& matrix) {
  const QuantizationMethod method = matrix.scheme.method;
  if (method == QuantizationMethod::kModelOpt) {
    return matrix.kind == StoredCodes::kFloat4 ? "nvfp4" : "fp8";
  }
  if (method == QuantizationMethod::kBitsAndBytes) {
    const std::string& state = matrix.state.name;
    return state.empty() ? "bnb8" : state.substr(state.size() - 3);
  }
  return StoredFormatName(matrix.scheme);
}

std::string_view PathOfWeights(std::string_view tensor) {
  for (const std::string_view name : {".weight", ".qweight", ".weight_packed"}) {
    if (tensor.ends_with(name)) {
      return tensor.substr(0, tensor.size() - name.size());
    }
  }
  return {};
}

}  // namespace strata
