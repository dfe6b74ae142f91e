// Which kernels a machine runs.
#ifndef STRATA_WORKER_BACKEND_CPU_KERNELS_ISA_H_
#define STRATA_WORKER_BACKEND_CPU_KERNELS_ISA_H_

#include <string>
#include <vector>

#include "worker/backend/cpu/kernels/cpu_features.h"
#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cpu {

// The instruction sets, named as in STRATA_CPU_ISA, that a machine has; "scalar" first.
std::vector<std::string> IsasOf(const CpuFeatures& features);
std::vector<std::string> MachineIsas();

// Every table that a machine can run, the best last; of an instruction set that has several the one
// for the machine's kind of processor behind the others.
std::vector<const Kernels*> KernelsOf(const CpuFeatures& features);
std::vector<const Kernels*> MachineKernels();

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_KERNELS_ISA_H_
