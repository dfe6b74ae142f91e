// CUDA C++, or what stands for it where kernels are compiled for the host
// (emulation/emulation.h). STRATA_LAUNCH(kernel, grid, block, stream, arguments...) launches one.
#ifndef STRATA_WORKER_BACKEND_CUDA_KERNELS_CUDA_LANGUAGE_H_
#define STRATA_WORKER_BACKEND_CUDA_KERNELS_CUDA_LANGUAGE_H_

#ifdef __CUDACC__
#include <cuda_runtime.h>

#define STRATA_LAUNCH(kernel, grid, block, stream, ...) \
  kernel<<<(grid), (block), 0, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)
#else
#include "worker/backend/cuda/emulation/emulation.h"
#endif

#endif  // STRATA_WORKER_BACKEND_CUDA_KERNELS_CUDA_LANGUAGE_H_
