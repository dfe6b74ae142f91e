// The CUDA backend on any device that Device describes: it computes the CPU's bits.
#ifndef STRATA_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_
#define STRATA_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/device/device.h"

namespace strata::cuda {

// Weights are read and packed by all cores of the host, as the CPU backend does, and then uploaded.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOn(std::shared_ptr<Device> device,
                                                       const BackendOptions& options = {});

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_
