// The CUDA backend on any device that Device describes: it computes the CPU's bits.
#ifndef STRATA_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_
#define STRATA_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/collective/collective.h"

namespace strata::cuda {

// Weights are read and packed by all cores of the host, as the CPU backend does, and then uploaded.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOn(std::shared_ptr<Device> device,
                                                       const BackendOptions& options = {});

// One of several devices over which each stage is divided.
struct DeviceRank {
  std::shared_ptr<Device> device;
  double share = 1;  // Of each stage, to the others' shares.
  // Of several, the most that stages take of it; 0: nine tenths of what is free.
  uint64_t memory_bytes = 0;
};
// Joins stages' ranks, one on each device, by rank: their collective gathers in devices' memory.
// `wait` is StageSpec::rank_wait.
using JoinDevices = std::function<absl::StatusOr<std::vector<std::unique_ptr<Collective>>>(
    std::span<const std::shared_ptr<Device>> devices, nanoseconds wait)>;
// INVALID_ARGUMENT (RANKS_INVALID) where there cannot be such ranks.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOver(const std::vector<DeviceRank>& ranks,
                                                         JoinDevices join,
                                                         const BackendOptions& options = {});

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_
