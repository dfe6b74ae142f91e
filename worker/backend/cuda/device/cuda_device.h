// A GPU by CUDA's runtime.
#ifndef STRATA_WORKER_BACKEND_CUDA_DEVICE_CUDA_DEVICE_H_
#define STRATA_WORKER_BACKEND_CUDA_DEVICE_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/backend/cuda/device/device.h"

namespace strata::cuda {

// The first GPU that CUDA_VISIBLE_DEVICES lets the process see. UNIMPLEMENTED (DEVICE_ABSENT)
// where the machine has none, or no driver.
absl::StatusOr<std::shared_ptr<Device>> OpenCudaDevice();

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_DEVICE_CUDA_DEVICE_H_
