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

namespace {

// Codes of one group, in words whose lowest bits come first.
void PutGroup(const uint8_t* u, uint32_t count, uint32_t bits, uint8_t* to) {
  if (bits == 8) {
    std::memcpy(to, u, count);
    return;
  }
  for (uint32_t i = 0; i < count; i += 2) {
    to[i / 2] = static_cast<uint8_t>(u[i] | u[i + 1] << 4);
  }
}

}  // namespace

void ReadIntegerRow(const TensorView& matrix, uint64_t row, uint64_t inputs, uint32_t bits,
                    uint32_t* words, float* scales, float* biases) {
  const uint8_t* const from = matrix.data + row * BlockRowBytes(matrix.dtype, inputs);
  auto* const bytes = reinterpret_cast<uint8_t*>(words);
  const BlockPanels panels = PanelsOf(matrix.dtype);
  if (!panels.super()) {
    for (size_t part = 0; part * kBlockPart < inputs; ++part) {
      const IntegerPart integers = DecodeIntegers(matrix.dtype, from, part);
      scales[part] = integers.scale;
      biases[part] =
          panels.kind == BlockPanels::Kind::kInt8 ? -128.0f * integers.scale : integers.bias;
      PutGroup(integers.u, kBlockPart, bits, bytes + part * kBlockPart * bits / 8);
    }
    return;
  }
  constexpr size_t kParts = kSuperBlock / kBlockPart;
  for (size_t block = 0; block * kSuperBlock < inputs; ++block) {
    const IntegerSuperBlock super = DecodeSuperBlock(matrix.dtype, from, block);
    for (size_t part = 0; part < kParts; ++part) {
      const size_t at = block * kParts + part;
      scales[at] = super.scale * static_cast<float>(super.c[part]);
      biases[at] = -super.minimum * static_cast<float>(super.m[part]);
      PutGroup(super.u + part * kBlockPart, kBlockPart, bits, bytes + at * kBlockPart * bits / 8);
    }
  }
}

void ReadMxfp4Row(const TensorView& matrix, uint64_t row, uint64_t inputs, uint32_t* words,
                  uint8_t* exponents) {
  const uint8_t* const from = matrix.data + row * BlockRowBytes(matrix.dtype, inputs);
  auto* const bytes = reinterpret_cast<uint8_t*>(words);
  for (size_t part = 0; part * kBlockPart < inputs; ++part) {
    const CodePart codes = DecodeCodes(matrix.dtype, from, part);
    exponents[part] = *CodeScalesAt(matrix.dtype, from, part);
    PutGroup(codes.u, kBlockPart, 4, bytes + part * kBlockPart / 2);
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
      PutGroup(u.data(), group, bits, bytes + g * group);
      continue;
    }
    cpu::F16 scale;
    cpu::F16 bias;
    cpu::QuantizeInt4(from, group, &scale, &bias, u.data());
    scales[g] = cpu::ToF32(scale);
    biases[g] = cpu::ToF32(bias);
    PutGroup(u.data(), group, bits, bytes + g * group / 2);
  }
}

}  // namespace strata::mlx
