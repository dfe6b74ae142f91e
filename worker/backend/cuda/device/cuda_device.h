// A GPU by CUDA's runtime.
#ifndef STRATA_WORKER_BACKEND_CUDA_DEVICE_CUDA_DEVICE_H_
#define STRATA_WORKER_BACKEND_CUDA_DEVICE_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/backend/cuda/device/device.h"

namespace strata::cuda {

// How many GPUs CUDA_VISIBLE_DEVICES lets the process see. UNIMPLEMENTED (DEVICE_ABSENT) where that
// is none, or there is no driver.
absl::StatusOr<uint32_t> CountCudaDevices();

// One of these, by its number from 0.
absl::StatusOr<std::shared_ptr<Device>> OpenCudaDevice(uint32_t index);

// Whether each of the two copies from the other's memory without the host's.
bool CudaDevicesReach(uint32_t one, uint32_t other);

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_DEVICE_CUDA_DEVICE_H_
