// The conformance suite's only kinds: the CUDA backend's own code and kernels, on a device that is
// emulated, and over several of them.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "tests/worker/backend/conformance/conforming_backends.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/emulated_collective.h"
#include "worker/backend/cuda/device/emulated_device.h"

namespace strata::testing {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{4} << 30;

absl::StatusOr<std::unique_ptr<Backend>> Over(const std::vector<double>& shares) {
  static const SystemClock clock;
  std::vector<cuda::DeviceRank> ranks;
  for (const double share : shares) {
    ranks.push_back({cuda::MakeEmulatedDevice(kDeviceBytes), share});
  }
  return cuda::MakeBackendOver(ranks, [](std::span<const std::shared_ptr<cuda::Device>> devices) {
    return cuda::MakeEmulatedCollectives(devices, {.clock = &clock});
  });
}

}  // namespace

std::vector<BackendKind> AllKinds() {
  return {{"cuda", [] { return cuda::MakeBackendOn(cuda::MakeEmulatedDevice(kDeviceBytes)); },
           &CudaFootprint()},
          {"cuda_ranks2",
           [] {
             return Over({1, 1});
           },
           nullptr},
          {"cuda_ranks3",
           [] {
             return Over({2, 1, 1});
           },
           nullptr},
          {"cuda_ranks4",
           [] {
             return Over({1, 1.5, 1, 1});
           },
           nullptr}};
}

}  // namespace strata::testing
