// Products of rows of activations with a stage's matrices, on a device.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_ROW_PRODUCTS_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_ROW_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/shard/device_scratch.h"

namespace strata::cuda {

// Rows of activations, quantized too where one of those who multiply them wants it.
struct RowInputs {
  const float* x = nullptr;
  size_t stride = 0;  // Floats.
  uint32_t rows = 0;
  bool quantized = false;  // To the scratch's quantized rows.
};

// Launches on one stream, and waits for nothing.
class RowProducts {
 public:
  // `int8`: products with quantized matrices are of quantized rows. `scratch`, which has room for
  // these, outlives this and may be allocated later.
  RowProducts(Stream stream, bool int8, const DeviceScratch* scratch)
      : stream_(stream), int8_(int8), scratch_(scratch) {}

  // `x` [rows][stride] for the products with `users`. What was prepared before is only good for
  // products in float from then on.
  using Users = std::initializer_list<const Matrix*>;
  RowInputs Prepare(const float* x, size_t stride, uint32_t rows, Users users) const;

  // Of all the rows, to `out` [rows][stride].
  static Product Of(const Matrix& matrix, const RowInputs& inputs, float* out, size_t stride);
  // `inputs` were prepared for `matrix`.
  void Multiply(const Matrix& matrix, const RowInputs& inputs, float* out, size_t stride) const;
  // The same of a product that says more; `quantized` is set here.
  void Multiply(Product product) const;

 private:
  bool TakesInt8(const Matrix& matrix) const { return int8_ && matrix.group != 0; }

  const Stream stream_;
  const bool int8_;
  const DeviceScratch* const scratch_;
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_ROW_PRODUCTS_H_
