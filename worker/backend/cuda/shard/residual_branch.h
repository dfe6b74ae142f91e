// A branch of a layer, attention or MLP: what it takes from the residual stream and adds to it.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_RESIDUAL_BRANCH_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_RESIDUAL_BRANCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/model/model_spec.h"
#include "worker/backend/cpu/shard/rank_link.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/shard/batch_on_device.h"
#include "worker/backend/cuda/shard/device_scratch.h"
#include "worker/backend/cuda/shard/device_weights.h"
#include "worker/backend/cuda/shard/row_products.h"

namespace strata::cuda {

using cpu::RankColumns;
using cpu::RankLink;

// What a norm adds to its weight.
inline float PlusOf(NormKind norm) { return norm == NormKind::kRmsOnePlus ? 1.0f : 0.0f; }

// Of the batch's rows, as wide as `hidden`. Launches on one stream, and waits for nothing; but that
// a rank gathers what the others have of a branch.
class ResidualBranch {
 public:
  // All outlive this, and may be allocated and begun later.
  ResidualBranch(Stream stream, uint32_t hidden, const RowProducts& products,
                 const DeviceScratch& scratch, const BatchOnDevice& batch, RankLink* link)
      : stream_(stream),
        hidden_(hidden),
        products_(products),
        scratch_(scratch),
        batch_(batch),
        link_(*link) {}

  // The residual stream, normed by `before` unless it is empty, for the products with `users`.
  RowInputs Begin(const LayerSpec& spec, const DeviceVector& before,
                  RowProducts::Users users) const;
  // Adds a branch's last product, that of `inputs` with `matrix`, to the residual stream, normed by
  // `after` unless it is empty and scaled as the layer says.
  absl::Status Finish(const RowInputs& inputs, const Matrix& matrix, const LayerSpec& spec,
                      const DeviceVector& after) const;
  // The same of what the scratch's branch holds, of which each rank has written its columns.
  absl::Status Add(const LayerSpec& spec, const DeviceVector& after) const;

 private:
  void Norm(const DeviceVector& weight, const LayerSpec& spec, const float* x, float* out) const;

  const Stream stream_;
  const uint32_t hidden_;
  const RowProducts& products_;
  const DeviceScratch& scratch_;
  const BatchOnDevice& batch_;
  RankLink& link_;
};

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_RESIDUAL_BRANCH_H_
