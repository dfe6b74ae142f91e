// The CPU backend: the reference and the default.
#ifndef STRATA_WORKER_BACKEND_CPU_CPU_BACKEND_H_
#define STRATA_WORKER_BACKEND_CPU_CPU_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"

namespace strata {

struct CpuOptions {
  uint32_t threads = 0;     // 0: the cores this process may use.
  std::string isa = {};     // "": the best; else as STRATA_CPU_ISA.
  std::string pin = "off";  // Threads to cores: "auto", "on" or "off"; threads/placement.h.
};

// INVALID_ARGUMENT: the machine lacks the instruction set, or cores to pin to.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& cpu,
                                                        const BackendOptions& options = {});

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_CPU_CPU_BACKEND_H_
