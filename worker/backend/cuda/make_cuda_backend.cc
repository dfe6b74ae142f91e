#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/backend/cuda/chosen_devices.h"
#include "worker/backend/cuda/device/cuda_device.h"
#include "worker/backend/cuda/nccl/nccl_library.h"
#include "worker/backend/optional_backends.h"

namespace strata {

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const DeviceOptions& devices,
                                                         const BackendOptions& options) {
  cuda::DeviceDriver driver;
  ASSIGN_OR_RETURN(driver.count, cuda::CountCudaDevices());
  driver.open = cuda::OpenCudaDevice;
  driver.join = []() -> absl::StatusOr<cuda::JoinDevices> {
    ASSIGN_OR_RETURN(const cuda::NcclCalls calls, cuda::OpenNccl());
    return cuda::JoinByNccl(calls);
  };
  driver.reach = cuda::CudaDevicesReach;
  return cuda::MakeBackendOnChosen(driver, devices, options);
}

bool CudaIsBuilt() { return true; }

}  // namespace strata
