// Which tensors a matrix of each format is stored in.
#include <algorithm>
#include <utility>

#include "common/model/quantized_weights.h"
#include "common/model/stored_matrix.h"

namespace strata {
namespace {

using Exists = std::function<bool(const std::string&)>;

constexpr uint64_t kBitsOfWord = 32;
constexpr uint64_t kNvGroup = 16;
constexpr uint64_t kMxGroup = 32;
// Of bitsandbytes: weights to a scale, and scales to one of theirs.
constexpr uint64_t kBnbBlock = 64;
constexpr uint64_t kBnbNested = 256;
// The largest scale of NVFP4 times the largest 4-bit float: MLX's scale of a matrix is its largest
// weight.
constexpr float kLargestNvfp4 = 448.0f * 6.0f;

uint64_t DivideUp(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

const std::vector<Dtype> kScaleDtypes = {Dtype::kF16, Dtype::kBF16};
const std::vector<Dtype> kAnyScale = {Dtype::kF32, Dtype::kF16, Dtype::kBF16};
const std::vector<Dtype> kExponents = {Dtype::kU8, Dtype::kF8E8M0};

void PlaceMlx(QuantizationMethod method, const std::string& path, const Exists& exists,
              StoredMatrix* matrix) {
  const bool affine = method == QuantizationMethod::kMlx;
  if (!affine) {
    const bool eight = method == QuantizationMethod::kMlxMxfp8;
    matrix->kind = eight ? StoredCodes::kFloat8 : StoredCodes::kFloat4;
    matrix->bits = eight ? 8 : 4;
    matrix->exponents = method != QuantizationMethod::kMlxNvfp4;
    matrix->group = matrix->exponents ? kMxGroup : kNvGroup;
  }
  matrix->codes = {path + ".weight",
                   {matrix->outputs, DivideUp(matrix->inputs * matrix->bits, kBitsOfWord)},
                   {Dtype::kU32}};
  const std::vector<uint64_t> shape = {matrix->outputs, matrix->groups()};
  matrix->scales = {path + ".scales", shape, affine ? kAnyScale : std::vector{Dtype::kU8}};
  if (affine) {
    matrix->biases = {path + ".biases", shape, kAnyScale};
  }
  if (method == QuantizationMethod::kMlxNvfp4 && exists(path + ".global_scale")) {
    matrix->tensor_scale = {path + ".global_scale", {1}, {Dtype::kF32}};
    matrix->tensor_factor = 1 / kLargestNvfp4;
  }
}

void PlaceAwq(const std::string& path, StoredMatrix* matrix) {
  const uint64_t words = DivideUp(matrix->outputs * matrix->bits, kBitsOfWord);
  matrix->codes = {path + ".qweight", {matrix->inputs, words}, {Dtype::kI32}};
  matrix->zeros = {path + ".qzeros", {matrix->groups(), words}, {Dtype::kI32}};
  matrix->scales = {path + ".scales", {matrix->groups(), matrix->outputs}, kScaleDtypes};
}

void PlaceGptq(const std::string& path, StoredMatrix* matrix) {
  const uint64_t words = DivideUp(matrix->outputs * matrix->bits, kBitsOfWord);
  const uint64_t rows = DivideUp(matrix->inputs * matrix->bits, kBitsOfWord);
  matrix->codes = {path + ".qweight", {rows, matrix->outputs}, {Dtype::kI32}};
  matrix->zeros = {path + ".qzeros", {matrix->groups(), words}, {Dtype::kI32}};
  matrix->scales = {path + ".scales", {matrix->groups(), matrix->outputs}, kScaleDtypes};
  matrix->order = {path + ".g_idx", {matrix->inputs}, {Dtype::kI32}};
}

void PlacePacked(const std::string& path, bool zeros, StoredMatrix* matrix) {
  const uint64_t words = DivideUp(matrix->inputs * matrix->bits, kBitsOfWord);
  const uint64_t rows = DivideUp(matrix->outputs * matrix->bits, kBitsOfWord);
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

// Shape of the scales of blocks of outputs and inputs.
std::vector<uint64_t> BlockShape(const StoredScheme& scheme, StoredMatrix* matrix) {
  matrix->group = scheme.block_inputs == 0 ? matrix->inputs : scheme.block_inputs;
  matrix->per_scale = scheme.block_outputs == 0 ? matrix->outputs : scheme.block_outputs;
  if (scheme.block_outputs == 0 && scheme.block_inputs == 0) {
    return {1};
  }
  return {DivideUp(matrix->outputs, matrix->per_scale), matrix->groups()};
}

void PlaceIntegers(const StoredScheme& scheme, const std::string& path, const Exists& exists,
                   StoredMatrix* matrix) {
  const std::vector<uint64_t> blocks = BlockShape(scheme, matrix);
  matrix->kind = StoredCodes::kSigned;
  matrix->codes = {path + ".weight", {matrix->outputs, matrix->inputs}, {Dtype::kI8}};
  // Those that are all zero may be there too.
  const std::string zeros = path + ".weight_zero_point";
  const bool has_zeros = scheme.has_zeros || exists(zeros);
  matrix->scales = {path + ".weight_scale", blocks, has_zeros ? kScaleDtypes : kAnyScale};
  if (has_zeros) {
    matrix->zeros = {zeros, blocks, {Dtype::kI8}};
  }
}

// Of 4-bit floats, two in a byte.
void PlaceFloat4(const std::string& codes, const std::string& path, StoredMatrix* matrix) {
  matrix->kind = StoredCodes::kFloat4;
  matrix->bits = 4;
  matrix->codes = {codes, {matrix->outputs, DivideUp(matrix->inputs, 2)}, {Dtype::kU8}};
  matrix->group = matrix->exponents ? kMxGroup : kNvGroup;
  matrix->scales = {path + ".weight_scale",
                    {matrix->outputs, matrix->groups()},
                    matrix->exponents ? kExponents : std::vector{Dtype::kF8E4M3}};
}

// Some call the scale its inverse; it multiplies all the same.
void PlaceFloat8(const StoredScheme& scheme, const std::string& path, const Exists& exists,
                 StoredMatrix* matrix) {
  const std::string inverse = path + ".weight_scale_inv";
  matrix->kind = StoredCodes::kFloat8;
  matrix->bits = 8;
  matrix->exponents = true;
  matrix->codes = {path + ".weight", {matrix->outputs, matrix->inputs}, {Dtype::kF8E4M3}};
  matrix->scales = {exists(inverse) ? inverse : path + ".weight_scale", BlockShape(scheme, matrix),
                    kAnyScale};
  matrix->scales.dtypes.push_back(Dtype::kF8E8M0);
  if (scheme.block_outputs == 1 && scheme.block_inputs == kMxGroup) {
    matrix->scales.dtypes.push_back(Dtype::kU8);
  }
}

void PlaceModelOpt(const std::string& path, const Exists& exists, StoredMatrix* matrix) {
  if (!exists(path + ".weight_scale_2")) {
    PlaceFloat8(StoredScheme(), path, exists, matrix);
    return;
  }
  PlaceFloat4(path + ".weight", path, matrix);
  matrix->tensor_scale = {path + ".weight_scale_2", {1}, {Dtype::kF32}};
}

void PlaceBitsAndBytes(const std::string& path, const Exists& exists, StoredMatrix* matrix) {
  if (exists(path + ".SCB")) {
    matrix->kind = StoredCodes::kSigned;
    matrix->bits = 8;
    matrix->group = matrix->inputs;
    matrix->tensor_factor = 1 / 127.0f;
    matrix->codes = {path + ".weight", {matrix->outputs, matrix->inputs}, {Dtype::kI8}};
    matrix->scales = {path + ".SCB", {matrix->outputs}, {Dtype::kF32}};
    return;
  }
  const std::string weight = path + ".weight";
  const uint64_t weights = matrix->outputs * matrix->inputs;
  const uint64_t scales = DivideUp(weights, kBnbBlock);
  const bool nested = exists(weight + ".nested_absmax");
  matrix->kind = StoredCodes::kTable;
  matrix->bits = 4;
  matrix->group = kBnbBlock;
  matrix->codes = {weight, {DivideUp(weights, 2), 1}, {Dtype::kU8}};
  matrix->scales = {weight + ".absmax", {scales}, {nested ? Dtype::kU8 : Dtype::kF32}};
  matrix->table = {weight + ".quant_map", {16}, {Dtype::kF32}};
  const std::string state = weight + ".quant_state.bitsandbytes__";
  matrix->state = {exists(state + "fp4") ? state + "fp4" : state + "nf4", {}, {Dtype::kU8}};
  if (nested) {
    matrix->nested_scales = {
        weight + ".nested_absmax", {DivideUp(scales, kBnbNested)}, {Dtype::kF32}};
    matrix->nested_table = {weight + ".nested_quant_map", {256}, {Dtype::kF32}};
  }
}

// One of each matrix, for all.
void Stack(uint64_t matrices, StoredMatrix* matrix) {
  for (StoredPart* part : {&matrix->codes, &matrix->scales, &matrix->biases, &matrix->zeros}) {
    if (!part->name.empty()) {
      part->shape.insert(part->shape.begin(), matrices);
    }
  }
  matrix->tensor_scale.shape = {matrices};
}

}  // namespace

bool IsPlainAffine(const StoredScheme& scheme) {
  return scheme.method == QuantizationMethod::kMlx && IsAffineBits(scheme.integers.bits) &&
         IsAffineGroup(scheme.integers.group);
}

const StoredScheme* QuantizationSpec::At(const std::string& path, bool embedding) const {
  if (const auto found = by_path.find(path); found != by_path.end()) {
    return &found->second;
  }
  if (rules.empty()) {
    return this;
  }
  const auto fits = std::find_if(rules.begin(), rules.end(), [&](const SchemeRule& rule) {
    return rule.target.Matches(path, embedding ? "Embedding" : "Linear");
  });
  return fits == rules.end() ? nullptr : &fits->scheme;
}

StoredMatrix StoredMatrixAt(const StoredScheme& scheme, const std::string& path, uint64_t outputs,
                            uint64_t inputs, const Exists& exists, uint64_t matrices) {
  const bool mlx = scheme.method <= QuantizationMethod::kMlxNvfp4;
  if (matrices != 0 && !mlx) {
    return StoredMatrix();  // No other tool stacks them.
  }
  StoredMatrix matrix;
  matrix.scheme = scheme;
  matrix.name = path + ".weight";
  matrix.matrices = std::max<uint64_t>(1, matrices);
  matrix.outputs = outputs;
  matrix.inputs = inputs;
  matrix.bits = scheme.integers.bits;
  matrix.group = scheme.integers.group == 0 ? inputs : scheme.integers.group;
  matrix.zeros_less_one = scheme.zeros_less_one;
  matrix.ordered = scheme.has_order;
  switch (scheme.method) {
    case QuantizationMethod::kMlx:
    case QuantizationMethod::kMlxMxfp4:
    case QuantizationMethod::kMlxMxfp8:
    case QuantizationMethod::kMlxNvfp4:
      PlaceMlx(scheme.method, path, exists, &matrix);
      break;
    case QuantizationMethod::kAwq:
      PlaceAwq(path, &matrix);
      break;
    case QuantizationMethod::kGptq:
      PlaceGptq(path, &matrix);
      break;
    case QuantizationMethod::kPacked:
      PlacePacked(path, scheme.has_zeros, &matrix);
      break;
    case QuantizationMethod::kIntegers:
      PlaceIntegers(scheme, path, exists, &matrix);
      break;
    case QuantizationMethod::kMxfp4:
      matrix.exponents = true;
      PlaceFloat4(path + ".weight_packed", path, &matrix);
      break;
    case QuantizationMethod::kNvfp4:
      PlaceFloat4(path + ".weight_packed", path, &matrix);
      matrix.tensor_scale = {path + ".weight_global_scale", {1}, {Dtype::kF32}};
      matrix.tensor_factor = 0;
      break;
    case QuantizationMethod::kFloat8:
      PlaceFloat8(scheme, path, exists, &matrix);
      break;
    case QuantizationMethod::kModelOpt:
      PlaceModelOpt(path, exists, &matrix);
      break;
    case QuantizationMethod::kBitsAndBytes:
      PlaceBitsAndBytes(path, exists, &matrix);
      break;
  }
  // Of some the weights have the name that floats have.
  if (!exists(matrix.codes.name) || !exists(matrix.scales.name)) {
    return StoredMatrix();
  }
  // Groups in order need not be written down.
  if (!matrix.order.name.empty() && !matrix.ordered && !exists(matrix.order.name)) {
    matrix.order = StoredPart();
  }
  if (matrices != 0) {
    Stack(matrices, &matrix);
  }
  return matrix;
}

}  // namespace strata
