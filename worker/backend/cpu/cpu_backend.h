// The CPU backend: the reference and the default.
#ifndef STRATA_WORKER_BACKEND_CPU_CPU_BACKEND_H_
#define STRATA_WORKER_BACKEND_CPU_CPU_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"

namespace strata {

// One of the ranks over which this process divides each of its stages.
struct CpuRank {
  uint32_t threads = 1;  // Its own.
  double share = 1;      // Of the outputs, beside the others'.
};

struct CpuOptions {
  uint32_t threads = 0;     // 0: the cores this process may use, or those of `ranks`.
  std::string isa = {};     // "": the best; else as STRATA_CPU_ISA.
  std::string pin = "off";  // Threads to cores: "auto", "on" or "off"; threads/placement.h.
  // Empty: a stage is computed whole, by `threads`. Their threads are not pinned.
  std::vector<CpuRank> ranks = {};
};

// INVALID_ARGUMENT: the machine lacks the instruction set, or cores to pin to; or ranks that cannot
// be (RANKS_INVALID).
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& cpu,
                                                        const BackendOptions& options = {});

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_CPU_CPU_BACKEND_H_
