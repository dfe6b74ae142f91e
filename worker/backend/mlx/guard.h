// MLX reports by exceptions; none goes further than the functions that are called in here.
#ifndef STRATA_WORKER_BACKEND_MLX_GUARD_H_
#define STRATA_WORKER_BACKEND_MLX_GUARD_H_

#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/backend/mlx/streams.h"

namespace strata::mlx {

// What `call`, which gives an absl::Status, gives. INTERNAL (MLX_FAILED) with MLX's own words where
// it throws, RESOURCE_EXHAUSTED (MEMORY_EXHAUSTED) where memory is short. `where` is what was done,
// on the thread's stream (TakeStream).
template <typename Call>
absl::Status Guarded(std::string_view where, Call&& call) {
  try {
    TakeStream();
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    return Error(absl::StatusCode::kResourceExhausted, "MEMORY_EXHAUSTED",
                 absl::StrCat("memory is short for ", std::string(where)));
  } catch (const std::exception& error) {
    return Error(absl::StatusCode::kInternal, "MLX_FAILED",
                 absl::StrCat("MLX failed at ", std::string(where), ": ", error.what()));
  } catch (...) {
    return Error(absl::StatusCode::kInternal, "MLX_FAILED",
                 absl::StrCat("MLX failed at ", std::string(where)));
  }
}

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_GUARD_H_
