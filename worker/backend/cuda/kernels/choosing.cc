// What temperature 0 chooses of a row of logits, as worker/sampler does: only that leaves the
// device.
#include "worker/backend/cuda/kernels/cuda_language.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace strata::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// The larger of two logits, of equals the lower id.
__device__ inline bool Beats(float logit, uint32_t id, float than, uint32_t than_id) {
  return logit > than || (logit == than && id < than_id);
}

// A block a row. Each thread looks at every kThreads-th logit.
__global__ void __launch_bounds__(kThreads)
    ChooseLargest(const float* logits, size_t stride, uint32_t width, RowChoice* choices) {
  __shared__ float largest[kThreads];
  __shared__ uint32_t ids[kThreads];
  __shared__ uint32_t flags[kThreads];
  const float infinity = __uint_as_float(0x7f800000u);
  const float* const row = logits + blockIdx.x * stride;
  float best = -infinity;
  uint32_t best_id = width;
  uint32_t unusable = 0;  // A NaN or +inf.
  uint32_t above = 0;     // One that is not -inf.
  for (uint32_t id = threadIdx.x; id < width; id += kThreads) {
    const float logit = row[id];
    unusable |= !(logit < infinity);
    above |= logit > -infinity;
    if (Beats(logit, id, best, best_id)) {
      best = logit;
      best_id = id;
    }
  }
  largest[threadIdx.x] = best;
  ids[threadIdx.x] = best_id;
  flags[threadIdx.x] = unusable << 1 | above;
  __syncthreads();
  for (uint32_t half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      const uint32_t other = threadIdx.x + half;
      if (Beats(largest[other], ids[other], largest[threadIdx.x], ids[threadIdx.x])) {
        largest[threadIdx.x] = largest[other];
        ids[threadIdx.x] = ids[other];
      }
      flags[threadIdx.x] |= flags[other];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    choices[blockIdx.x] = {ids[0], flags[0] == 1 ? 1u : 0u};
  }
}

}  // namespace

void Choose(Stream stream, const float* logits, size_t stride, uint32_t rows, uint32_t width,
            RowChoice* choices) {
  STRATA_LAUNCH(ChooseLargest, dim3(rows), dim3(kThreads), stream, logits, stride, width, choices);
}

}  // namespace strata::cuda
