// A backend over the devices that a worker was told to compute on.
#ifndef STRATA_WORKER_BACKEND_CUDA_CHOSEN_DEVICES_H_
#define STRATA_WORKER_BACKEND_CUDA_CHOSEN_DEVICES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/nccl/nccl_calls.h"
#include "worker/backend/device_choice.h"

namespace strata::cuda {

// What a process has of devices: CUDA's, or those of a test.
struct DeviceDriver {
  uint32_t count = 0;  // At least 1; they are 0 to count - 1.
  std::function<absl::StatusOr<std::shared_ptr<Device>>(uint32_t index)> open = nullptr;
  // What joins several; asked before any is opened.
  std::function<absl::StatusOr<JoinDevices>()> join = nullptr;
  // Whether two reach each other's memory; null: all do.
  std::function<bool(uint32_t one, uint32_t other)> reach = nullptr;
};

// Several devices divide each stage by their shares: as stated, or else as fast as each was
// measured to read (SharesOfSpeeds). INVALID_ARGUMENT (DEVICE_UNKNOWN) for a number that no device
// has, RANKS_INVALID where all of them are more than a stage has ranks; and driver.join's.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOnChosen(const DeviceDriver& driver,
                                                             const DeviceOptions& devices,
                                                             const BackendOptions& options);

// To each other, as the speeds are: in eighths of the fastest, at least one, so that devices of one
// kind have equal shares, and packed weights stay of use from start to start.
std::vector<double> SharesOfSpeeds(std::span<const double> bytes_per_s);

// Stages' ranks are joined by NCCL. CheckNcclVersion's errors.
absl::StatusOr<JoinDevices> JoinByNccl(const NcclCalls& calls);

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_CHOSEN_DEVICES_H_
