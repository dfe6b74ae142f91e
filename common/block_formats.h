// Matrices in ggml's formats of blocks, as GGUF files keep them: a row is a chain of blocks of 32
// or 256 weights, each with scales of its own. The formats: ggml-common.h and ggml-quants.c of
// github.com/ggml-org/ggml.
#ifndef STRATA_COMMON_BLOCK_FORMATS_H_
#define STRATA_COMMON_BLOCK_FORMATS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/model_spec.h"

namespace strata {

// Weights that are decoded at once. All of them share a scale, except in Q6_K.
inline constexpr size_t kBlockPart = 32;

bool IsBlocks(Dtype dtype);
// Of one block of a format of blocks.
size_t BlockElements(Dtype dtype);
size_t BlockBytes(Dtype dtype);

// Bytes of a tensor; of blocks too, whose last dimension has to be whole blocks. Nothing where that
// is not so, or where the number overflows.
std::optional<uint64_t> TensorBytes(Dtype dtype, std::span<const uint64_t> shape);

// Weights [32 part, 32 part + 32) of the row that begins at `row`, as gguf-py dequantizes them.
void DecodePart(Dtype dtype, const uint8_t* row, size_t part, float* out);

// How a worker keeps a matrix of blocks: as integers with a scale, or with a scale and a bias, for
// each 32 inputs, which is exactly what the blocks say; or as float32 where no such form has it.
struct BlockPanels {
  enum class Kind { kInt8, kAffine8, kAffine4, kFloats } kind = Kind::kFloats;
  Dtype scales = Dtype::kF32;  // Of scale and bias.
};
BlockPanels PanelsOf(Dtype dtype);
// Whether integers keep it, so that nothing is left to quantize.
bool IsIntegerBlocks(Dtype dtype);

// A part as integers: weight i is scale * (u[i] - 128) for kInt8, else scale * u[i] + bias,
// exactly.
struct IntegerPart {
  float scale = 0;
  float bias = 0;
  uint8_t u[kBlockPart];
};
// Of a format that IsIntegerBlocks.
IntegerPart DecodeIntegers(Dtype dtype, const uint8_t* row, size_t part);

// What a loaded matrix takes, in panels of 16 outputs.
uint64_t BlockMatrixBytes(Dtype dtype, uint64_t outputs, uint64_t inputs);

}  // namespace strata

#endif  // STRATA_COMMON_BLOCK_FORMATS_H_
