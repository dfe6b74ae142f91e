// Stored matrices as MLX computes with them: floats, or MLX's own words of 4 or 8 bits with a
// float32 scale and bias for each group. Bytes alone: nothing of MLX is in here.
#ifndef STRATA_WORKER_BACKEND_MLX_ARRAY_FORMATS_H_
#define STRATA_WORKER_BACKEND_MLX_ARRAY_FORMATS_H_

#include <cstdint>
#include <span>

#include "common/model/dtype.h"
#include "worker/backend/tensor_source.h"

namespace strata::mlx {

// How a matrix, or one of each expert, lies in memory: all words, then all scales, then all biases;
// or floats.
struct ArrayLayout {
  uint64_t matrices = 0;  // 0: one, without that dimension.
  uint64_t outputs = 0;   // Of each.
  uint64_t inputs = 0;
  uint32_t bits = 0;  // 0: floats.
  // Those: F32, or as they are stored, F16 or BF16.
  Dtype floats = Dtype::kF32;
  uint32_t group = 0;
  // 4-bit floats, and a byte for each group, its exponent, in place of scale and bias.
  bool mxfp4 = false;

  uint64_t rows() const { return (matrices == 0 ? 1 : matrices) * outputs; }
  uint32_t BitsOfEach() const { return bits != 0 ? bits : floats == Dtype::kF32 ? 32 : 16; }
  // Of floats all of it.
  uint64_t WordBytes() const { return rows() * inputs * BitsOfEach() / 8; }
  // Of the scales alone, and of the biases alone.
  uint64_t ScaleBytes() const {
    return bits == 0 ? 0 : rows() * (inputs / group) * (mxfp4 ? 1 : sizeof(float));
  }
  uint64_t BiasBytes() const { return mxfp4 ? 0 : ScaleBytes(); }
  // In whole words.
  uint64_t Bytes() const {
    return (WordBytes() + ScaleBytes() + BiasBytes() + sizeof(uint32_t) - 1) / sizeof(uint32_t) *
           sizeof(uint32_t);
  }
};

// F32, F16 or BF16.
bool IsPlainFloat(Dtype dtype);
// Value `index` of a tensor of these, exactly.
float FloatAt(const TensorView& tensor, uint64_t index);
// Row `row` of a matrix of floats or blocks, exactly: as many floats as `out` has.
void ReadRow(const TensorView& matrix, uint64_t row, std::span<float> out);

// Row `row` of a matrix of blocks whose integers or codes MLX keeps (MlxBlocksOf), in groups of 32.
void ReadIntegerRow(const TensorView& matrix, uint64_t row, uint64_t inputs, uint32_t bits,
                    uint32_t* words, float* scales, float* biases);
void ReadMxfp4Row(const TensorView& matrix, uint64_t row, uint64_t inputs, uint32_t* words,
                  uint8_t* exponents);

// The largest group that MLX has and that divides the inputs, of `most` at most; 0: none does.
uint32_t GroupOf(uint64_t inputs, uint32_t most);
// Quantizes one row to 4 or 8 bits, by the rules of --quantize (worker/backend/cpu/weights).
void QuantizeRow(std::span<const float> row, uint32_t bits, uint32_t group, uint32_t* words,
                 float* scales, float* biases);

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_ARRAY_FORMATS_H_
