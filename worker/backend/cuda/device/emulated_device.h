// A device whose memory is the host's, and whose kernels run over emulation/emulation.h.
#ifndef STRATA_WORKER_BACKEND_CUDA_DEVICE_EMULATED_DEVICE_H_
#define STRATA_WORKER_BACKEND_CUDA_DEVICE_EMULATED_DEVICE_H_

#include <cstdint>
#include <memory>

#include "worker/backend/cuda/device/device.h"

namespace strata::cuda {

// With so much memory: what is allocated beyond it is refused.
std::unique_ptr<Device> MakeEmulatedDevice(uint64_t memory_bytes);

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_DEVICE_EMULATED_DEVICE_H_
