// The conformance suite's only kind: the CUDA backend's own code and kernels, on a device that is
// emulated.
#include <cstdint>
#include <vector>

#include "tests/worker/backend/conformance/conforming_backends.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/emulated_device.h"

namespace strata::testing {

std::vector<BackendKind> AllKinds() {
  constexpr uint64_t kDeviceBytes = uint64_t{4} << 30;
  return {{"cuda", [] { return cuda::MakeBackendOn(cuda::MakeEmulatedDevice(kDeviceBytes)); },
           &CudaFootprint()}};
}

}  // namespace strata::testing
