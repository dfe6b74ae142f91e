// How fast a device is, for the planner.
#ifndef STRATA_WORKER_BACKEND_CUDA_MEASURE_H_
#define STRATA_WORKER_BACKEND_CUDA_MEASURE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/device/device.h"

namespace strata::cuda {

// Reads `bytes` of the device's memory, or a quarter of what is free, again and again, and then
// computes: `seconds` in all, and twice each however long that takes.
absl::StatusOr<DeviceSpeed> MeasureDevice(Device* device, double seconds, uint64_t bytes);

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_MEASURE_H_
