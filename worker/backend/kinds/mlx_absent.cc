// In place of worker/backend/mlx where the build lacks it.
#include "common/status.h"
#include "worker/backend/optional_backends.h"

namespace strata {

absl::StatusOr<std::unique_ptr<Backend>> MakeMlxBackend(const BackendOptions& options) {
  return Error(absl::StatusCode::kUnimplemented, kBackendAbsent, "this build has no MLX backend")
      .Hint("install a build made on a machine with MLX, or use --backend cpu");
}

bool MlxIsBuilt() { return false; }

bool MlxHasGpu() { return false; }

}  // namespace strata
