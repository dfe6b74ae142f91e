#include "common/stored_matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/half.h"
#include "common/quantized_weights.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr uint32_t kWordBits = 32;
constexpr uint64_t kPanelOutputs = 16;
// Groups that panels may have, the largest first: fewer scales are better.
constexpr uint32_t kPanelGroups[] = {128, 64, 32};
// Which 4 bits of a word of AWQ's an output has, by its number within the word.
constexpr uint32_t kAwqPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};
constexpr uint32_t kAwqBits = 4;
constexpr uint32_t kAwqWord = kWordBits / kAwqBits;

uint64_t Divide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

uint32_t WordAt(const uint8_t* words, size_t index) {
  uint32_t word;
  std::memcpy(&word, words + index * sizeof(word), sizeof(word));
  return word;
}

uint32_t Part(uint32_t word, uint32_t bits, size_t place) {
  return word >> place * bits & ((1u << bits) - 1);
}

// Of AWQ's words [inputs, columns], each 8 outputs of an input: those of one column and of 8 inputs
// from `input` on, as words of 8 inputs of an output.
void TurnAwqWords(const uint8_t* codes, size_t input, size_t column, size_t columns,
                  uint32_t* turned) {
  std::fill(turned, turned + kAwqWord, 0);
  for (uint32_t i = 0; i < kAwqWord; ++i) {
    const uint32_t word = WordAt(codes, (input + i) * columns + column);
    for (uint32_t output = 0; output < kAwqWord; ++output) {
      turned[output] |= Part(word, kAwqBits, kAwqPlaces[output]) << i * kAwqBits;
    }
  }
}

// 1 in each place of a word.
uint32_t Ones(uint32_t bits) { return bits == 4 ? 0x11111111u : 0x01010101u; }

const std::vector<Dtype> kScaleDtypes = {Dtype::kF16, Dtype::kBF16};
const std::vector<Dtype> kAnyScale = {Dtype::kF32, Dtype::kF16, Dtype::kBF16};

void PlaceAwq(const std::string& path, StoredMatrix* matrix) {
  const uint64_t words = Divide(matrix->outputs * matrix->bits, kWordBits);
  matrix->codes = {path + ".qweight", {matrix->inputs, words}, {Dtype::kI32}};
  matrix->zeros = {path + ".qzeros", {matrix->groups(), words}, {Dtype::kI32}};
  matrix->scales = {path + ".scales", {matrix->groups(), matrix->outputs}, kScaleDtypes};
}

void PlaceGptq(const std::string& path, StoredMatrix* matrix) {
  const uint64_t words = Divide(matrix->outputs * matrix->bits, kWordBits);
  const uint64_t rows = Divide(matrix->inputs * matrix->bits, kWordBits);
  matrix->codes = {path + ".qweight", {rows, matrix->outputs}, {Dtype::kI32}};
  matrix->zeros = {path + ".qzeros", {matrix->groups(), words}, {Dtype::kI32}};
  matrix->scales = {path + ".scales", {matrix->groups(), matrix->outputs}, kScaleDtypes};
  matrix->order = {path + ".g_idx", {matrix->inputs}, {Dtype::kI32}};
}

void PlacePacked(const std::string& path, bool zeros, StoredMatrix* matrix) {
  const uint64_t words = Divide(matrix->inputs * matrix->bits, kWordBits);
  const uint64_t rows = Divide(matrix->outputs * matrix->bits, kWordBits);
  matrix->codes = {path + ".weight_packed", {matrix->outputs, words}, {Dtype::kI32}};
  // A zero times a scale has to be a float32.
  matrix->scales = {path + ".weight_scale",
                    {matrix->outputs, matrix->groups()},
                    zeros ? kScaleDtypes : kAnyScale};
  if (zeros) {
    matrix->zeros = {path + ".weight_zero_point", {rows, matrix->groups()}, {Dtype::kI32}};
  }
  matrix->order = {path + ".weight_g_idx", {matrix->inputs}, {Dtype::kI32}};
}

// Some call the scale its inverse; it multiplies all the same.
void PlaceFloat8(const QuantizationSpec& spec, const std::string& path,
                 const std::function<bool(const std::string&)>& exists, StoredMatrix* matrix) {
  const std::string inverse = path + ".weight_scale_inv";
  matrix->codes = {path + ".weight", {matrix->outputs, matrix->inputs}, {Dtype::kF8E4M3}};
  matrix->scales = {exists(inverse) ? inverse : path + ".weight_scale",
                    {Divide(matrix->outputs, matrix->per_scale), matrix->groups()},
                    kAnyScale};
  if (spec.block_outputs == 0 && spec.block_inputs == 0) {
    matrix->scales.shape = {1};
  }
}

}  // namespace

StoredMatrix StoredMatrixAt(const QuantizationSpec& spec, const std::string& path, uint64_t outputs,
                            uint64_t inputs,
                            const std::function<bool(const std::string&)>& exists) {
  StoredMatrix matrix;
  matrix.method = spec.method;
  matrix.outputs = outputs;
  matrix.inputs = inputs;
  matrix.bits = spec.by_default.bits;
  matrix.group = spec.by_default.group == 0 ? inputs : spec.by_default.group;
  matrix.zeros_less_one = spec.zeros_less_one;
  matrix.ordered = spec.has_order;
  switch (spec.method) {
    case QuantizationMethod::kMlx:
      return StoredMatrix();
    case QuantizationMethod::kAwq:
      PlaceAwq(path, &matrix);
      break;
    case QuantizationMethod::kGptq:
      PlaceGptq(path, &matrix);
      break;
    case QuantizationMethod::kPacked:
      PlacePacked(path, spec.has_zeros, &matrix);
      break;
    case QuantizationMethod::kFloat8:
      matrix.bits = 8;
      matrix.group = spec.block_inputs == 0 ? inputs : spec.block_inputs;
      matrix.per_scale = spec.block_outputs == 0 ? outputs : spec.block_outputs;
      PlaceFloat8(spec, path, exists, &matrix);
      break;
  }
  // Of Float8 the weights have the name that floats have.
  if (!exists(matrix.codes.name) || !exists(matrix.scales.name)) {
    return StoredMatrix();
  }
  // Groups in order need not be written down.
  if (!matrix.order.name.empty() && !matrix.ordered && !exists(matrix.order.name)) {
    matrix.order = StoredPart();
  }
  return matrix;
}

std::vector<const StoredPart*> StoredMatrix::Parts() const {
  std::vector<const StoredPart*> parts;
  for (const StoredPart* part : {&codes, &scales, &zeros, &order}) {
    if (!part->name.empty()) {
      parts.push_back(part);
    }
  }
  return parts;
}

uint32_t StoredMatrix::KeptGroup() const {
  if (method == QuantizationMethod::kFloat8 || ordered || as_floats || inputs % kWordBits != 0) {
    return 0;
  }
  for (const uint32_t kept : kPanelGroups) {
    if (group % kept == 0 && inputs % kept == 0) {
      return kept;
    }
  }
  return 0;
}

uint64_t StoredMatrix::KeptBytes(uint32_t quantize) const {
  const uint64_t padded = Divide(outputs, kPanelOutputs) * kPanelOutputs;
  const uint32_t kept = KeptGroup();
  if (kept == 0 && quantize != 0) {
    return QuantizedMatrixBytes(outputs, inputs, quantize);
  }
  return kept == 0 ? padded * inputs * sizeof(float)
                   : padded * (inputs * bits / 8 + inputs / kept * 2 * sizeof(float));
}

std::string StoredFormatName(const QuantizationSpec& spec) {
  if (spec.method == QuantizationMethod::kFloat8) {
    std::string name = "fp8";
    for (const uint32_t size : {spec.block_outputs, spec.block_inputs}) {
      if (spec.block_outputs + spec.block_inputs != 0) {
        absl::StrAppend(&name, name.size() == 3 ? "-" : "x",
                        size == 0 ? "all" : absl::StrCat(size));
      }
    }
    return name;
  }
  constexpr const char* kNames[] = {"affine", "awq", "gptq", "packed"};
  std::string name = absl::StrCat(kNames[static_cast<size_t>(spec.method)], spec.by_default.bits);
  if (spec.by_default.group != 0) {
    absl::StrAppend(&name, "g", spec.by_default.group);
  }
  return spec.has_order ? name + "-actorder" : name;
}

std::string_view PathOfWeights(std::string_view tensor) {
  for (const std::string_view name : {".weight", ".qweight", ".weight_packed"}) {
    if (tensor.ends_with(name)) {
      return tensor.substr(0, tensor.size() - name.size());
    }
  }
  return {};
}

StoredWeights::StoredWeights(const StoredMatrix& matrix, const Data& data)
    : matrix_(matrix), data_(data) {}

absl::Status StoredWeights::CheckOrder() const {
  if (matrix_.order.name.empty()) {
    return absl::OkStatus();
  }
  for (size_t input = 0; input < matrix_.inputs; ++input) {
    const uint32_t group = WordAt(data_.order, input);
    if (group >= matrix_.groups() || (!matrix_.ordered && group != input / matrix_.group)) {
      return Error(absl::StatusCode::kInvalidArgument, "TENSOR_VALUE",
                   absl::StrCat("tensor ", matrix_.order.name, " says group ",
                                static_cast<int32_t>(group), " of input ", input, ", where ",
                                matrix_.ordered ? "there are " : "config.json says groups of ",
                                matrix_.ordered ? matrix_.groups() : matrix_.group,
                                matrix_.ordered ? " (by group_size)"
                                : matrix_.method == QuantizationMethod::kGptq
                                    ? " in order (by desc_act, group_size)"
                                    : " in order (by actorder, group_size)"));
    }
  }
  return absl::OkStatus();
}

size_t StoredWeights::GroupOf(size_t input) const {
  return matrix_.ordered ? WordAt(data_.order, input) : input / matrix_.group;
}

uint32_t StoredWeights::CodeAt(size_t output, size_t input) const {
  const uint32_t bits = matrix_.bits;
  const uint32_t a_word = kWordBits / bits;
  switch (matrix_.method) {
    case QuantizationMethod::kAwq:
      return Part(WordAt(data_.codes, input * matrix_.codes.shape[1] + output / a_word), bits,
                  kAwqPlaces[output % a_word]);
    case QuantizationMethod::kGptq:
      return Part(WordAt(data_.codes, input / a_word * matrix_.outputs + output), bits,
                  input % a_word);
    default:
      return Part(WordAt(data_.codes, output * matrix_.codes.shape[1] + input / a_word), bits,
                  input % a_word);
  }
}

uint32_t StoredWeights::ZeroAt(size_t output, size_t group) const {
  const uint32_t bits = matrix_.bits;
  const uint32_t a_word = kWordBits / bits;
  switch (matrix_.method) {
    case QuantizationMethod::kAwq:
      return Part(WordAt(data_.zeros, group * matrix_.zeros.shape[1] + output / a_word), bits,
                  kAwqPlaces[output % a_word]);
    case QuantizationMethod::kGptq: {
      const uint32_t word = WordAt(data_.zeros, group * matrix_.zeros.shape[1] + output / a_word);
      return Part(matrix_.zeros_less_one ? word + Ones(bits) : word, bits, output % a_word);
    }
    default:
      return matrix_.zeros.name.empty()
                 ? 1u << (bits - 1)
                 : Part(WordAt(data_.zeros, output / a_word * matrix_.groups() + group), bits,
                        output % a_word);
  }
}

float StoredWeights::ScaleAt(size_t output, size_t group) const {
  const bool by_group =
      matrix_.method == QuantizationMethod::kAwq || matrix_.method == QuantizationMethod::kGptq;
  const size_t index = by_group ? group * matrix_.outputs + output
                                : output / matrix_.per_scale * matrix_.groups() + group;
  const uint8_t* const at = data_.scales + index * DtypeBytes(data_.scale_dtype);
  if (data_.scale_dtype == Dtype::kF32) {
    return std::bit_cast<float>(WordAt(at, 0));
  }
  return data_.scale_dtype == Dtype::kF16 ? HalfAt(at) : Bfloat16At(at);
}

void StoredWeights::ReadWords(size_t first, size_t end, uint32_t* words) const {
  const uint32_t a_word = kWordBits / matrix_.bits;
  const size_t row = matrix_.inputs / a_word;
  switch (matrix_.method) {
    case QuantizationMethod::kGptq:
      for (size_t j = 0; j < row; ++j) {
        for (size_t output = first; output < end; ++output) {
          words[(output - first) * row + j] = WordAt(data_.codes, j * matrix_.outputs + output);
        }
      }
      return;
    case QuantizationMethod::kAwq:
      for (size_t j = 0; j < row; ++j) {
        for (size_t column = first / kAwqWord; column * kAwqWord < end; ++column) {
          uint32_t turned[kAwqWord];
          TurnAwqWords(data_.codes, j * kAwqWord, column, matrix_.codes.shape[1], turned);
          for (uint32_t i = 0; i < kAwqWord; ++i) {
            const size_t output = column * kAwqWord + i;
            if (output >= first && output < end) {
              words[(output - first) * row + j] = turned[i];
            }
          }
        }
      }
      return;
    default:
      std::memcpy(words, data_.codes + first * row * sizeof(uint32_t),
                  (end - first) * row * sizeof(uint32_t));
  }
}

void StoredWeights::ReadScales(size_t first, size_t end, float* scales, float* biases) const {
  const uint32_t kept = matrix_.KeptGroup();
  for (size_t output = first; output < end; ++output) {
    for (size_t input = 0; input < matrix_.inputs; input += kept) {
      const size_t group = input / matrix_.group;
      const float scale = ScaleAt(output, group);
      *scales++ = scale;
      // Exact: a scale of 16 bits has 11 of mantissa, a zero 8 at most, and the middle is a power
      // of two.
      *biases++ = -(scale * static_cast<float>(ZeroAt(output, group)));
    }
  }
}

void StoredWeights::ReadFloats(size_t first, size_t end, float* out) const {
  const bool float8 = matrix_.method == QuantizationMethod::kFloat8;
  const size_t groups = matrix_.groups();
  std::vector<float> scales(groups);
  std::vector<int32_t> zeros(groups);
  for (size_t output = first; output < end; ++output) {
    for (size_t group = 0; group < groups; ++group) {
      scales[group] = ScaleAt(output, group);
      zeros[group] = float8 ? 0 : static_cast<int32_t>(ZeroAt(output, group));
    }
    for (size_t input = 0; input < matrix_.inputs; ++input) {
      const size_t group = GroupOf(input);
      const float code =
          float8 ? Float8ToF32(data_.codes[output * matrix_.inputs + input])
                 : static_cast<float>(static_cast<int32_t>(CodeAt(output, input)) - zeros[group]);
      *out++ = scales[group] * code;
    }
  }
}

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

}  // namespace strata
