// The MLX backend with what tests choose of it; it is made by MakeMlxBackend
// (worker/backend/optional_backends.h).
#ifndef STRATA_WORKER_BACKEND_MLX_MLX_BACKEND_H_
#define STRATA_WORKER_BACKEND_MLX_MLX_BACKEND_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"

namespace strata::mlx {

struct MlxOptions {
  // Rows that products take at once (RowBlocks); 0: any number. Unset: as the device needs it.
  std::optional<int> row_block = std::nullopt;
  // DeviceFacts::shared_bytes, all of which MLX keeps resident. Unset: what Metal recommends.
  std::optional<uint64_t> shared_bytes = std::nullopt;
};

absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOf(const MlxOptions& mlx,
                                                       const BackendOptions& options = {});

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_MLX_BACKEND_H_
