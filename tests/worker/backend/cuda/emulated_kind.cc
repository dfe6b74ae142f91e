// The conformance suite's only kinds: the CUDA backend's own code and kernels, on a device that is
// emulated, and over several of them.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "tests/worker/backend/conformance/conforming_backends.h"
#include "worker/backend/cuda/chosen_devices.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/emulated_collective.h"
#include "worker/backend/cuda/device/emulated_device.h"

namespace strata::testing {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{4} << 30;

// As a worker makes it of --devices.
absl::StatusOr<std::unique_ptr<Backend>> Over(const std::string& devices) {
  static const SystemClock clock;
  ASSIGN_OR_RETURN(DeviceChoice choice, ParseDevices(devices));
  const auto join = [](std::span<const std::shared_ptr<cuda::Device>> joined, nanoseconds) {
    return cuda::MakeEmulatedCollectives(joined, {.clock = &clock});
  };
  return cuda::MakeBackendOnChosen(
      {.count = 4,
       .open = [](uint32_t index) -> absl::StatusOr<std::shared_ptr<cuda::Device>> {
         return cuda::MakeEmulatedDevice(kDeviceBytes, {}, {.index = index});
       },
       .join = [join]() -> absl::StatusOr<cuda::JoinDevices> { return join; }},
      {.choice = std::move(choice)}, {});
}

}  // namespace

std::vector<BackendKind> AllKinds() {
  return {{"cuda", [] { return cuda::MakeBackendOn(cuda::MakeEmulatedDevice(kDeviceBytes)); },
           &CudaFootprint()},
          {"cuda_ranks2", [] { return Over("0=1,1=1"); }, nullptr},
          {"cuda_ranks3", [] { return Over("0=2,1=1,2=1"); }, nullptr},
          {"cuda_ranks4", [] { return Over("0=1,1=1.5,2=1,3=1"); }, nullptr}};
}

}  // namespace strata::testing
