// In place of worker/backend/cuda where the build lacks it.
#include "common/status.h"
#include "worker/backend/optional_backends.h"

namespace strata {

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const DeviceOptions& /*devices*/,
                                                         const BackendOptions& /*options*/) {
  return Error(absl::StatusCode::kUnimplemented, kBackendAbsent, "this build has no CUDA backend")
      .Hint("install a build made on a machine with the CUDA Toolkit, or use --backend cpu");
}

bool CudaIsBuilt() { return false; }

}  // namespace strata
