// The steps of a layer as graphs of MLX. Rows are float32 throughout. All may throw.
#ifndef STRATA_WORKER_BACKEND_MLX_LAYER_OPS_H_
#define STRATA_WORKER_BACKEND_MLX_LAYER_OPS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/model/model_spec.h"
#include "mlx/array.h"
#include "worker/backend/mlx/array_weights.h"

namespace strata::mlx {

// MLX's name for how integers or codes are meant.
const char* ModeOf(const ArrayLayout& layout);

// int32 [values].
::mlx::core::array Indices(std::span<const uint32_t> values);

// Rows of a matrix, float32 [rows, inputs]: embeddings of tokens.
::mlx::core::array RowsOf(const MatrixArrays& matrix, const ::mlx::core::array& rows);

// What products take at once. The kernels that MLX chooses on a GPU, and with them the order of
// sums, follow from how many rows there are; a block has always as many, the last one filled with
// zeros.
struct RowBlocks {
  int rows = 0;  // 0: any number, where a row's result does not depend on it.
};

// product(part) of x, or of its parts one after another; both have rows as their first axis.
using RowProduct = std::function<::mlx::core::array(const ::mlx::core::array& rows)>;
::mlx::core::array InBlocks(const RowBlocks& blocks, const ::mlx::core::array& x,
                            const RowProduct& product);

// x [rows, inputs] times the matrix, and the bias: [rows, outputs].
::mlx::core::array Multiply(const RowBlocks& blocks, const ::mlx::core::array& x,
                            const Linear& linear);

// Of the last axis.
::mlx::core::array Normed(const ::mlx::core::array& x, const ::mlx::core::array& weight, float eps);

// What turns a batch's rows in one layer. A head's first 2 * half numbers are pairs of two that
// turn together: of neighbours [half, 2], else [2, half].
struct Rotation {
  bool neighbours = false;
  ::mlx::core::array cosines;  // float32 [rows, 1, half, 1] or [rows, 1, 1, half]
  ::mlx::core::array sines;    // [rows, 1] and a pair's shape: less than 0 for its first number.
};
// Of `half` cosines for each row, behind whose first lie the row's sines after `sines` numbers.
Rotation RotationOfRows(std::span<const float* const> cosines, uint64_t sines, uint32_t half,
                        bool neighbours);
// x [rows, heads, head_dim].
::mlx::core::array Rotated(const ::mlx::core::array& x, const Rotation& rotation);

// activation(gate) * up.
::mlx::core::array Gated(const MlpSpec& mlp, const ::mlx::core::array& gate,
                         const ::mlx::core::array& up);

// Columns [begin, end) of the last axis.
::mlx::core::array Columns(const ::mlx::core::array& x, int begin, int end);

// cap * tanh(x / cap); x where cap is 0.
::mlx::core::array SoftCapped(const ::mlx::core::array& x, float cap);

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_LAYER_OPS_H_
