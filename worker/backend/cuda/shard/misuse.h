// What a shard answers to calls that are a mistake of the runner's, never of a request.
#ifndef STRATA_WORKER_BACKEND_CUDA_SHARD_MISUSE_H_
#define STRATA_WORKER_BACKEND_CUDA_SHARD_MISUSE_H_

#include <string>

#include "absl/status/status.h"
#include "common/status.h"

namespace strata::cuda {

inline absl::Status Misuse(const std::string& message) {
  return Error(absl::StatusCode::kInternal, "SHARD_MISUSE", message);
}

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_SHARD_MISUSE_H_
