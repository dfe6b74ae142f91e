// Ranks on emulated devices, whose memory is the host's: by threads of this process.
#ifndef STRATA_WORKER_BACKEND_CUDA_DEVICE_EMULATED_COLLECTIVE_H_
#define STRATA_WORKER_BACKEND_CUDA_DEVICE_EMULATED_COLLECTIVE_H_

#include <memory>
#include <span>
#include <vector>

#include "worker/backend/cuda/device/device.h"
#include "worker/collective/collective.h"
#include "worker/collective/thread_collective.h"

namespace strata::cuda {

// One for each device, each of which MakeEmulatedDevice made. What ranks gather is done when the
// emulation does what is on the stream, or once another rank waits for it there: a device needs no
// host to go on. What fails then is said by the calls that follow.
std::vector<std::unique_ptr<Collective>> MakeEmulatedCollectives(
    std::span<const std::shared_ptr<Device>> devices, const ThreadCollectiveOptions& options);

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_DEVICE_EMULATED_COLLECTIVE_H_
