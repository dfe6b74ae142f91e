// The kernels that a worker runs.
#ifndef STRATA_WORKER_BACKEND_CPU_KERNELS_CHOOSE_KERNELS_H_
#define STRATA_WORKER_BACKEND_CPU_KERNELS_CHOOSE_KERNELS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "worker/backend/cpu/kernels/cpu_features.h"
#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cpu {

// The kernels for `isa`, named as in STRATA_CPU_ISA, "" meaning the best. One that
// the machine lacks is INVALID_ARGUMENT, naming what it has; a set that this build has no kernels
// for gets the best there are, and Kernels::isa says which.
absl::StatusOr<const Kernels*> ChooseKernels(std::string_view isa,
                                             const CpuFeatures& machine = MachineFeatures());

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_KERNELS_CHOOSE_KERNELS_H_
