// A device whose memory is the host's, and whose kernels run over emulation/emulation.h.
#ifndef STRATA_WORKER_BACKEND_CUDA_DEVICE_EMULATED_DEVICE_H_
#define STRATA_WORKER_BACKEND_CUDA_DEVICE_EMULATED_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "worker/backend/cuda/device/device.h"

namespace strata::cuda {

// What goes wrong with it.
struct DeviceFaults {
  // Asked at every call that may fail, whether this one and all later ones do, as of a device that
  // fell off the bus. Null: none does.
  std::function<bool()> fails = nullptr;
  // Asked at every such call, whether this one fails alone.
  std::function<bool()> fails_once = nullptr;
  // The copy to the device, counted from 0, of which a bit is flipped on the way.
  std::optional<uint64_t> flipped_copy = std::nullopt;
};

// How often graphs were used, of a device that the test made.
struct GraphCounts {
  uint64_t recorded = 0;
  uint64_t launched = 0;
};
struct EmulationOptions {
  uint64_t stream_order = 0;  // See cuda_emulation::Streams.
  GraphCounts* graphs = nullptr;
  uint32_t index = 0;  // Device::index.
};

// With so much memory: what is allocated beyond it is refused.
std::unique_ptr<Device> MakeEmulatedDevice(uint64_t memory_bytes, DeviceFaults faults = {},
                                           EmulationOptions options = {});

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_DEVICE_EMULATED_DEVICE_H_
