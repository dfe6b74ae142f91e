// Norms whose lanes are added up one after another.
#define STRATA_WORKER_BACKEND_CUDA_KERNELS_LANES_INL_H_
#include "worker/backend/cuda/kernels/kernels.h"

namespace strata::cuda {

inline float TreeSum(const float* lanes) {
  float sum = 0;
  for (size_t i = 0; i < kLanes; ++i) {
    sum += lanes[i];
  }
  return sum;
}

}  // namespace strata::cuda

#include "worker/backend/cuda/kernels/rows.cc"
