// Matrices in formats of blocks: a row is a chain of blocks of 32, 64 or 256 weights, each with
// scales of its own. Most are ggml's, as GGUF files keep them: ggml-common.h and ggml-quants.c of
// github.com/ggml-org/ggml.
//
// Rows of 4-bit codes (common/model/code_books.h) are what other checkpoints of such weights are
// brought into on their way to a backend, which then keeps them in 4 bits
// (common/model/stored_matrix.h; worker/backend/gpt_oss_tensors.h). Numbers are little-endian, and
// the codes of 32 inputs are 16 bytes, of which byte i has that of input i in its low half and that
// of input 16 + i in its high one:
//   MXFP4  blocks of 32: an exponent e, a byte, then codes. w = 2^(e - 127) * value; 255 means no
//          number. It is ggml's too.
//   NVFP4  a float32 of the whole row, r; then blocks of 32: two 8-bit floats (E4M3), c of the
//          inputs 0 to 15 and of those from 16 on, then codes. w = (r * c) * value. (ggml's type of
//          that name is another.)
//   NVFP4_BF16  the same, w = (c / r) * value, rounded to bfloat16.
//   NF4, FP4  a word of the whole row, its CodeRounding; then blocks of 64: a float32,
//          bitsandbytes' absmax, then codes twice. w = absmax * value, so rounded.
#ifndef STRATA_COMMON_MODEL_BLOCK_FORMATS_H_
#define STRATA_COMMON_MODEL_BLOCK_FORMATS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/model/code_books.h"
#include "common/model/model_spec.h"

namespace strata {

// Weights that are decoded at once.
inline constexpr size_t kBlockPart = 32;
// Of a super-block, which Q4_K, Q5_K and Q6_K have.
inline constexpr size_t kSuperBlock = 256;

bool IsBlocks(Dtype dtype);
// Of one block of a format of blocks.
size_t BlockElements(Dtype dtype);
size_t BlockBytes(Dtype dtype);
// Of a row of so many inputs, which are whole blocks.
uint64_t BlockRowBytes(Dtype dtype, uint64_t inputs);

// Bytes of a tensor; of blocks too, whose last dimension has to be whole blocks, and of elements of
// less than a byte, which have to fill bytes. Nothing where that is not so, or where the number
// overflows.
std::optional<uint64_t> TensorBytes(Dtype dtype, std::span<const uint64_t> shape);

// Weights [32 part, 32 part + 32) of the row that begins at `row`, as gguf-py dequantizes them.
void DecodePart(Dtype dtype, const uint8_t* row, size_t part, float* out);

// How a worker keeps a matrix of blocks, which is exactly what the blocks say: as integers with a
// scale, or with a scale and a bias, for each 32 inputs; as 4-bit codes; or super-blocks of
// integers of so many bits, with their two levels of scales.
struct BlockPanels {
  enum class Kind {
    kInt8,
    kAffine8,
    kAffine4,
    kCodes,
    kSuper2,
    kSuper4,
    kSuper5,
    kSuper6
  } kind = Kind::kInt8;
  Dtype scales = Dtype::kF32;  // Of scale and bias; of a super-block's own.
  bool super() const { return kind >= Kind::kSuper2; }
};
// Of a format of blocks.
BlockPanels PanelsOf(Dtype dtype);
// Bits of the integers that a worker keeps, and of those in the file.
uint32_t KeptBits(Dtype dtype);
uint32_t StoredBits(Dtype dtype);

// A part as integers: weight i is scale * (u[i] - 128) for kInt8, else scale * u[i] + bias,
// exactly.
struct IntegerPart {
  float scale = 0;
  float bias = 0;
  uint8_t u[kBlockPart];
};
// Of a format without super-blocks and codes.
IntegerPart DecodeIntegers(Dtype dtype, const uint8_t* row, size_t part);

// A super-block as integers. Weight i is, of Q4_K and Q5_K, the rounded sum of the exact
// scale * c[i / 32] * u[i] and -minimum * m[i / 32]; of Q2_K likewise with c[i / 16] and m[i / 16];
// of Q3_K and Q6_K, scale * c[i / 16] * (u[i] - 32), exactly.
struct IntegerSuperBlock {
  float scale = 0;
  float minimum = 0;
  int8_t c[16] = {};  // Of Q4_K and Q5_K eight, below 64; so are the m. Of Q2_K both are below 16.
  int8_t m[16] = {};
  uint8_t u[kSuperBlock];
};
// Super-block `block` of the row that begins at `row`.
IntegerSuperBlock DecodeSuperBlock(Dtype dtype, const uint8_t* row, size_t block);

// A part of a format of codes: weight i is (row * scales[i / 16]) * value of u[i], or, where the
// book says so, (scales[i / 16] / row) * value; then rounded. What it keeps is what is stored: the
// scales' own bytes, and for kSuper a whole number.
struct CodePart {
  float row = 1;
  float scales[2] = {};  // Of 16 inputs each.
  CodeRounding rounding = CodeRounding::kNone;
  uint8_t u[kBlockPart];
};
// The book of a format of codes.
const CodeBook& BookOf(Dtype dtype);
CodePart DecodeCodes(Dtype dtype, const uint8_t* row, size_t part);
float WeightOf(const CodeBook& book, const CodePart& part, size_t i);
// What the part's scale is in the row that begins at `row`: of kExponent one byte, of kFloat8Halves
// two, of kHalf a float16, of kFloat the float32 of 64 inputs.
const uint8_t* CodeScalesAt(Dtype dtype, const uint8_t* row, size_t part);
// IQ4_XS: the scale of its 256 inputs, and what this part's 32 multiply it by, -32 to 31.
struct SuperCodeScale {
  float scale = 0;
  int8_t factor = 0;
};
SuperCodeScale SuperCodeScaleAt(const uint8_t* row, size_t part);
// Of kFloat: the row's.
CodeRounding RowRounding(const uint8_t* row);
// Codes of 32 inputs, a byte each, as the 16 bytes of a row.
void PutCodes(const uint8_t* codes, uint8_t* to);

// What a loaded matrix takes, in panels of 16 outputs.
uint64_t BlockMatrixBytes(Dtype dtype, uint64_t outputs, uint64_t inputs);

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_BLOCK_FORMATS_H_
