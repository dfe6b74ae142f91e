// What makes strata-worker-emulated of a worker: --backend cuda is the CUDA backend's own code and
// kernels on an emulated device. STRATA_DEVICE_FLIP=N flips a bit of the N-th copy to the device
// (from 0), where weights are uploaded one behind another. STRATA_DEVICE_FAILS=FILE: the device
// falls off its bus once there is such a file.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/emulated_device.h"
#include "worker/backend/kinds/make_backend.h"

namespace strata {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{256} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view name,
                                                     const KindOptions& options) {
  if (name != "cuda") {
    return MakeCpuBackend(options.cpu, options.any);
  }
  cuda::DeviceFaults faults;
  if (const char* const flip = std::getenv("STRATA_DEVICE_FLIP"); flip != nullptr) {
    faults.flipped_copy = std::strtoull(flip, nullptr, 10);
  }
  if (const char* const file = std::getenv("STRATA_DEVICE_FAILS"); file != nullptr) {
    faults.fails = [file] { return access(file, F_OK) == 0; };
  }
  return cuda::MakeBackendOn(cuda::MakeEmulatedDevice(kDeviceBytes, std::move(faults)),
                             options.any);
}

}  // namespace strata
