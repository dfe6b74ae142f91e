#include "worker/backend/cuda/shard/row_products.h"

namespace strata::cuda {

RowInputs RowProducts::Prepare(const float* x, size_t stride, uint32_t rows, Users users) const {
  RowInputs inputs = {.x = x, .stride = stride, .rows = rows};
  for (const Matrix* user : users) {
    if (TakesInt8(*user) && !inputs.quantized) {
      inputs.quantized = true;
      Quantize(stream_, x, stride, rows, user->inputs, scratch_->quantized(user->inputs));
    }
  }
  return inputs;
}

Product RowProducts::Of(const Matrix& matrix, const RowInputs& inputs, float* out, size_t stride) {
  return {.matrix = matrix,
          .rows = inputs.rows,
          .x = inputs.x,
          .x_stride = inputs.stride,
          .out = out,
          .out_stride = stride};
}

void RowProducts::Multiply(const Matrix& matrix, const RowInputs& inputs, float* out,
                           size_t stride) const {
  Multiply(Of(matrix, inputs, out, stride));
}

void RowProducts::Multiply(Product product) const {
  const QuantizedRows quantized = scratch_->quantized(product.matrix.inputs);
  product.quantized = TakesInt8(product.matrix) ? &quantized : nullptr;
  cuda::Multiply(stream_, product);
}

}  // namespace strata::cuda
