// NCCL's library, opened while the process runs: a worker without it starts, and says what is
// missing where several GPUs are to compute a stage.
#ifndef STRATA_WORKER_BACKEND_CUDA_NCCL_NCCL_LIBRARY_H_
#define STRATA_WORKER_BACKEND_CUDA_NCCL_NCCL_LIBRARY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/cuda/nccl/nccl_calls.h"

namespace strata::cuda {

// There is no library, or not one with all calls.
inline constexpr char kNcclAbsent[] = "NCCL_ABSENT";
inline constexpr char kNcclTooOld[] = "NCCL_TOO_OLD";
// A call of it failed.
inline constexpr char kNcclFailed[] = "NCCL_FAILED";

inline constexpr char kNcclLibrary[] = "libnccl.so.2";

// The library stays open until the process ends. UNIMPLEMENTED (NCCL_ABSENT). Any thread.
absl::StatusOr<NcclCalls> OpenNccl(const std::string& library = kNcclLibrary);

// UNIMPLEMENTED (NCCL_TOO_OLD) where the library is older than kNcclOldestVersion.
absl::Status CheckNcclVersion(const NcclCalls& calls);

// What a call answered that failed, of a communicator or null: ABORTED (COLLECTIVE_ABORTED) where
// another rank is the cause, else INTERNAL (NCCL_FAILED).
absl::Status NcclError(const NcclCalls& calls, NcclComm* comm, const std::string& call,
                       NcclResult result);

}  // namespace strata::cuda

#endif  // STRATA_WORKER_BACKEND_CUDA_NCCL_NCCL_LIBRARY_H_
