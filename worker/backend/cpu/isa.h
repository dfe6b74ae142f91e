// Which kernels this machine runs.
#ifndef STRATA_WORKER_BACKEND_CPU_ISA_H_
#define STRATA_WORKER_BACKEND_CPU_ISA_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/cpu/kernels.h"

namespace strata::cpu {

// The instruction sets, named as in STRATA_CPU_ISA, that this machine has; "scalar" first.
std::vector<std::string> MachineIsas();

// Every table that this machine can run, the best last.
std::vector<const Kernels*> MachineKernels();

// The kernels for `isa`, "" meaning the best. Sets that have no kernels of their own (amx, neon,
// neondot) get the best there are for their machine; Kernels::isa says which. One that
// the machine lacks is INVALID_ARGUMENT, naming what it has.
absl::StatusOr<const Kernels*> ChooseKernels(std::string_view isa);

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_ISA_H_
