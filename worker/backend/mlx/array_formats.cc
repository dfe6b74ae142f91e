#include "worker/backend/mlx/array_formats.h"

#include <cstring>
#include <vector>

#include "common/model/block_formats.h"
#include "common/model/half.h"
#include "worker/backend/cpu/kernels/convert.h"
#include "worker/backend/cpu/weights/quantize.h"

namespace strata::mlx {

bool IsPlainFloat(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBF16;
}

float FloatAt(const TensorView& tensor, uint64_t index) {
  if (tensor.dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, tensor.data + index * sizeof(value), sizeof(value));
    return value;
  }
  const uint8_t* const at = tensor.data + index * sizeof(uint16_t);
  return tensor.dtype == Dtype::kF16 ? HalfAt(at) : Bfloat16At(at);
}

void ReadRow(const TensorView& matrix, uint64_t row, std::span<float> out) {
  if (IsPlainFloat(matrix.dtype)) {
    for (uint64_t i = 0; i < out.size(); ++i) {
      out[i] = FloatAt(matrix, row * out.size() + i);
    }
    return;
  }
  const uint8_t* const from = matrix.data + row * BlockRowBytes(matrix.dtype, out.size());
  for (size_t part = 0; part * kBlockPart < out.size(); ++part) {
    DecodePart(matrix.dtype, from, part, out.data() + part * kBlockPart);
  }
}

uint32_t GroupOf(uint64_t inputs, uint32_t most) {
  for (const uint32_t group : {128u, 64u, 32u}) {
    if (group <= most && inputs % group == 0) {
      return group;
    }
  }
  return 0;
}

void QuantizeRow(std::span<const float> row, uint32_t bits, uint32_t group, uint32_t* words,
                 float* scales, float* biases) {
  std::vector<uint8_t> u(group);
  auto* const bytes = reinterpret_cast<uint8_t*>(words);  // The lowest bits of a word come first.
  for (size_t g = 0; g * group < row.size(); ++g) {
    const float* const from = row.data() + g * group;
    if (bits == 8) {
      cpu::QuantizeInt8(from, group, &scales[g], u.data());
      biases[g] = -128.0f * scales[g];
      std::memcpy(bytes + g * group, u.data(), group);
      continue;
    }
    cpu::F16 scale;
    cpu::F16 bias;
    cpu::QuantizeInt4(from, group, &scale, &bias, u.data());
    scales[g] = cpu::ToF32(scale);
    biases[g] = cpu::ToF32(bias);
    for (uint32_t i = 0; i < group; i += 2) {
      bytes[(g * group + i) / 2] = static_cast<uint8_t>(u[i] | u[i + 1] << 4);
    }
  }
}

}  // namespace strata::mlx
