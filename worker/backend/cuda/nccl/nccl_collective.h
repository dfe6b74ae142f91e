// Ranks on several devices of this process, by NCCL.
#ifndef STRATA_WORKER_BACKEND_CUDA_NCCL_NCCL_COLLECTIVE_H_
#define STRATA_WORKER_BACKEND_CUDA_NCCL_NCCL_COLLECTIVE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/nccl/nccl_calls.h"
#include "worker/collective/collective.h"

namespace strata::cuda {

struct NcclCollectiveOptions {
  nanoseconds timeout = milliseconds(60'000);  // Of one wait.
  nanoseconds join_timeout{0};                 // For all ranks to join; 0: as timeout.
  const Clock* clock = nullptr;                // Outlives the collectives; any thread.
  // Called between two looks at what a rank waits for, on the rank's thread.
  std::function<void()> pause = nullptr;
  // Of each device: what rows are packed in on their way. A row of all ranks has room there.
  uint64_t staging_bytes = uint64_t{16} << 20;
  int most_channels = NcclConfig::kUndefined;  // Between ranks; each takes memory of devices.
};

// One for each device, by rank, once all have joined; `calls` stay good until the process ends.
// An end that is destroyed ends those of the others. The errors are CheckNcclVersion's,
// NcclError's, the devices' own, and COLLECTIVE_TIMEOUT.
//
// Waits are bounded, and calls are NCCL's to return from: communicators are made so that none
// blocks. ncclCommAbort, which may hang all the same, runs on threads of its own, and those that do
// not return within the timeout are left behind.
absl::StatusOr<std::vector<std::unique_ptr<Collective>>> MakeNcclCollectives(
    const NcclCalls& calls, std::span<const std::shared_ptr<Device>> devices,
    const NcclCollectiveOptions& options);

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_NCCL_NCCL_COLLECTIVE_H_
