// Backends that a build may lack: each is linked from its own folder, or from a file of
// worker/backend/kinds that says it is absent (UNIMPLEMENTED, BACKEND_ABSENT). Where the build has
// it and the machine has no such device, or no driver: UNIMPLEMENTED (DEVICE_ABSENT).
#ifndef STRATA_WORKER_BACKEND_OPTIONAL_BACKENDS_H_
#define STRATA_WORKER_BACKEND_OPTIONAL_BACKENDS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/backend/device_choice.h"

namespace strata {

inline constexpr char kBackendAbsent[] = "BACKEND_ABSENT";
inline constexpr char kDeviceAbsent[] = "DEVICE_ABSENT";

// On the first device, or those that were chosen: INVALID_ARGUMENT (DEVICE_UNKNOWN) where there is
// none of a number, and for several UNIMPLEMENTED (NCCL_ABSENT, NCCL_TOO_OLD) without what joins
// them.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const DeviceOptions& devices,
                                                         const BackendOptions& options);
// Whether the build has it, whatever the machine has.
bool CudaIsBuilt();
absl::StatusOr<std::unique_ptr<Backend>> MakeMlxBackend(const BackendOptions& options);
bool MlxIsBuilt();
// Whether the build has it, and MLX drives a GPU here. Without one the CPU's own backend is faster.
bool MlxHasGpu();

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_OPTIONAL_BACKENDS_H_
