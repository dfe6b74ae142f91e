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

// Weights that are decoded at once.
inline constexpr size_t kBlockPart = 32;
// Of a super-block, which Q4_K, Q5_K and Q6_K have.
inline constexpr size_t kSuperBlock = 256;

bool IsBlocks(Dtype dtype);
// Of one block of a format of blocks.
size_t BlockElements(Dtype dtype);
size_t BlockBytes(Dtype dtype);

// Bytes of a tensor; of blocks too, whose last dimension has to be whole blocks. Nothing where that
// is not so, or where the number overflows.
std::optional<uint64_t> TensorBytes(Dtype dtype, std::span<const uint64_t> shape);

// Weights [32 part, 32 part + 32) of the row that begins at `row`, as gguf-py dequantizes them.
void DecodePart(Dtype dtype, const uint8_t* row, size_t part, float* out);

// How a worker keeps a matrix of blocks, which is exactly what the blocks say: as integers with a
// scale, or with a scale and a bias, for each 32 inputs; or super-blocks of integers of so many
// bits, with their two levels of scales.
struct BlockPanels {
  enum class Kind { kInt8, kAffine8, kAffine4, kSuper4, kSuper5, kSuper6 } kind = Kind::kInt8;
  Dtype scales = Dtype::kF32;  // Of scale and bias; of a super-block's own.
  bool super() const { return kind >= Kind::kSuper4; }
};
// Of a format of blocks.
BlockPanels PanelsOf(Dtype dtype);

// A part as integers: weight i is scale * (u[i] - 128) for kInt8, else scale * u[i] + bias,
// exactly.
struct IntegerPart {
  float scale = 0;
  float bias = 0;
  uint8_t u[kBlockPart];
};
// Of a format without super-blocks.
IntegerPart DecodeIntegers(Dtype dtype, const uint8_t* row, size_t part);

// A super-block as integers. Weight i is, of Q4_K and Q5_K, the rounded sum of the exact
// scale * c[i / 32] * u[i] and -minimum * m[i / 32]; of Q6_K, scale * c[i / 16] * (u[i] - 32),
// exactly.
struct IntegerSuperBlock {
  float scale = 0;
  float minimum = 0;
  int8_t c[16] = {};  // Of Q4_K and Q5_K eight, below 64; so are the m.
  int8_t m[8] = {};
  uint8_t u[kSuperBlock];
};
// Super-block `block` of the row that begins at `row`.
IntegerSuperBlock DecodeSuperBlock(Dtype dtype, const uint8_t* row, size_t block);

// What a loaded matrix takes, in panels of 16 outputs.
uint64_t BlockMatrixBytes(Dtype dtype, uint64_t outputs, uint64_t inputs);

}  // namespace strata

#endif  // STRATA_COMMON_BLOCK_FORMATS_H_
