// Sums and maxima over 16 lanes. Included by the kernels' sources alone.
#ifndef STRATA_WORKER_BACKEND_CUDA_KERNELS_LANES_INL_H_
#define STRATA_WORKER_BACKEND_CUDA_KERNELS_LANES_INL_H_

#include "worker/backend/cuda/kernels/floats-inl.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace strata::cuda {

// Lanes i and i + 8 are combined, i and i + 4, i and i + 2, 0 and 1.
template <typename Combine>
__device__ inline float Tree(const float* lanes, const Combine& combine) {
  float t[kLanes / 2];
  for (uint32_t i = 0; i < kLanes / 2; ++i) {
    t[i] = combine(lanes[i], lanes[i + kLanes / 2]);
  }
  for (uint32_t width = kLanes / 4; width > 0; width /= 2) {
    for (uint32_t i = 0; i < width; ++i) {
      t[i] = combine(t[i], t[i + width]);
    }
  }
  return t[0];
}

__device__ inline float TreeSum(const float* lanes) {
  return Tree(lanes, [](float a, float b) { return a + b; });
}
__device__ inline float LargestLane(const float* lanes) {
  return Tree(lanes, [](float a, float b) { return MaxOf(a, b); });
}

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_KERNELS_LANES_INL_H_
