#include <memory>
#include <utility>

#include "common/status.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/device/cuda_device.h"
#include "worker/backend/optional_backends.h"

namespace strata {

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const BackendOptions& options) {
  ASSIGN_OR_RETURN(std::shared_ptr<cuda::Device> device, cuda::OpenCudaDevice());
  return cuda::MakeBackendOn(std::move(device), options);
}

bool CudaIsBuilt() { return true; }

}  // namespace strata
