// What shows how fast a device is: reading, and float32 fma.
#include "worker/backend/cuda/kernels/cuda_language.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace strata::cuda {
namespace {

constexpr uint32_t kThreads = 256;
// What no sum of these kernels comes to: only so that their work is not left out.
constexpr uint64_t kNeverWords = 0x9e3779b97f4a7c15u;
constexpr float kNeverSum = -1;

// A thread's loads lie as far apart as the grid is wide: a warp's lie side by side.
__global__ void __launch_bounds__(kThreads)
    MixWords(const uint64_t* words, size_t count, uint32_t* out) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  uint64_t mixed = 0;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    mixed ^= words[i];
  }
  if (mixed == kNeverWords) {
    *out = 1;
  }
}

// Chains that wait for nothing but themselves.
__global__ void __launch_bounds__(kThreads) ChainFmas(uint32_t rounds, float* out) {
  float sums[kFmaChains];
  for (uint32_t c = 0; c < kFmaChains; ++c) {
    sums[c] = static_cast<float>(threadIdx.x + c);
  }
  for (uint32_t round = 0; round < rounds; ++round) {
    for (uint32_t c = 0; c < kFmaChains; ++c) {
      sums[c] = __fmaf_rn(sums[c], 0.5f, 1.0f);
    }
  }
  float sum = 0;
  for (uint32_t c = 0; c < kFmaChains; ++c) {
    sum += sums[c];
  }
  if (sum == kNeverSum) {
    *out = sum;
  }
}

}  // namespace

void ReadWords(Stream stream, uint32_t blocks, const uint64_t* words, size_t count, uint32_t* out) {
  STRATA_LAUNCH(MixWords, dim3(blocks), dim3(kThreads), stream, words, count, out);
}

uint64_t RunFmas(Stream stream, uint32_t blocks, uint32_t rounds, float* out) {
  STRATA_LAUNCH(ChainFmas, dim3(blocks), dim3(kThreads), stream, rounds, out);
  return uint64_t{blocks} * kThreads * kFmaChains * rounds;
}

}  // namespace strata::cuda
