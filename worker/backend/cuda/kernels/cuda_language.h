// CUDA C++, or what stands for it where kernels are compiled for the host
// (emulation/emulation.h). STRATA_LAUNCH(kernel, grid, block, stream, arguments...) launches one.
// STRATA_MMA_S8_K32(d, a, b) and _K16 are mma.sync m16n8k32 and m16n8k16 of signed bytes, by all
// threads of a warp: d += a b, with the fragments of the PTX ISA, int d[4], uint32_t a[4] and b[2],
// or a[2] and b[1].
// STRATA_UNROLL before a loop has it written out.
#ifndef STRATA_WORKER_BACKEND_CUDA_KERNELS_CUDA_LANGUAGE_H_
#define STRATA_WORKER_BACKEND_CUDA_KERNELS_CUDA_LANGUAGE_H_

#ifdef __CUDACC__
#include <cuda_runtime.h>

#define STRATA_LAUNCH(kernel, grid, block, stream, ...) \
  kernel<<<(grid), (block), 0, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)

namespace strata::cuda {

__device__ inline void MmaBytes32(int* d, const unsigned* a, const unsigned* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void MmaBytes16(int* d, const unsigned* a, const unsigned* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}

}  // namespace strata::cuda

#define STRATA_UNROLL _Pragma("unroll")
#define STRATA_MMA_S8_K32(d, a, b) ::strata::cuda::MmaBytes32(d, a, b)
#define STRATA_MMA_S8_K16(d, a, b) ::strata::cuda::MmaBytes16(d, a, b)
#else
#include "worker/backend/cuda/emulation/emulation.h"
#endif

#endif  // STRATA_WORKER_BACKEND_CUDA_KERNELS_CUDA_LANGUAGE_H_
