// Weights that a tool quantized (common/model/stored_matrix.h), as backends read weights: each
// matrix as MLX's words of 4 or 8 bits, scales and biases, or as blocks, where these say the same,
// else as float32.
#ifndef STRATA_WORKER_WEIGHTS_STORED_TENSORS_H_
#define STRATA_WORKER_WEIGHTS_STORED_TENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/mutex.h"
#include "worker/backend/tensor_source.h"

namespace strata {

// Any thread. A matrix is made when the first of its tensors is asked for, and takes memory until
// each of them is released.
class StoredTensors : public TensorSource {
 public:
  // `tensors`: of the stage, as TensorsOf gives them; all others are the source's own. `source`
  // outlives it.
  StoredTensors(const std::vector<StageTensor>& tensors, const TensorSource& source);

  absl::StatusOr<TensorInfo> Describe(std::string_view name) const override;
  absl::Status Prepare(const std::vector<std::string>& names) const override;
  // Errors: the source's; INVALID_ARGUMENT (TENSOR_VALUE) where a tensor's values cannot be;
  // RESOURCE_EXHAUSTED where memory is short.
  absl::StatusOr<TensorView> Find(std::string_view name) const override;
  void Release(std::string_view name, size_t bytes) const override;

 private:
  // A tensor that a backend sees.
  struct Made {
    TensorInfo info;
    std::unique_ptr<uint32_t[]> data;  // While it is there.
  };
  struct Matrix {
    StoredMatrix stored;
    std::vector<Made> made;  // As words, scales, biases; or as blocks or floats alone.
  };
  struct Place {
    size_t matrix = 0;
    size_t made = 0;
  };
  void Add(const std::string& name, Dtype dtype, std::vector<uint64_t> shape);
  absl::Status Make(Matrix* matrix) const;
  // Of the digests of the matrix's parts, and of how the tensor is made of them; "" where one is
  // unknown.
  std::string DigestOf(const StoredMatrix& matrix, size_t made) const;

  const TensorSource& source_;
  std::map<std::string, Place, std::less<>> places_;
  mutable Mutex mutex_;
  mutable std::vector<Matrix> matrices_;  // What they hold is guarded.
};

}  // namespace strata

#endif  // STRATA_WORKER_WEIGHTS_STORED_TENSORS_H_
