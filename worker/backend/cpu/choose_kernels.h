// The kernels that a worker runs.
#ifndef STRATA_WORKER_BACKEND_CPU_CHOOSE_KERNELS_H_
#define STRATA_WORKER_BACKEND_CPU_CHOOSE_KERNELS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "worker/backend/cpu/cpu_features.h"
#include "worker/backend/cpu/kernels.h"

namespace strata::cpu {

// The kernels for `isa`, named as in STRATA_CPU_ISA, "" meaning the best. A set that has no kernels
// of its own (amx) gets the best there are for the machine; Kernels::isa says which. One that the
// machine lacks is INVALID_ARGUMENT, naming what it has.
absl::StatusOr<const Kernels*> ChooseKernels(std::string_view isa,
                                             const CpuFeatures& machine = MachineFeatures());

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_CHOOSE_KERNELS_H_
