// Whether there is memory for what a load makes.
#ifndef STRATA_WORKER_BACKEND_MLX_AVAILABLE_H_
#define STRATA_WORKER_BACKEND_MLX_AVAILABLE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace strata::mlx {

// Asked before memory is touched: an allocation that the system cannot back kills later.
// RESOURCE_EXHAUSTED (MEMORY_EXHAUSTED) where `bytes` are more than the machine has left, or than a
// device that holds `shared_bytes` at most (0: any number) has left beside what MLX has allocated.
absl::Status CheckAvailable(std::string_view what, uint64_t bytes, uint64_t shared_bytes);

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_AVAILABLE_H_
