// Tables of kernels to be tested, and a name for each: several are of the same instruction set.
#ifndef STRATA_TESTS_WORKER_BACKEND_TABLES_H_
#define STRATA_TESTS_WORKER_BACKEND_TABLES_H_

#include <string>
#include <vector>

#include "worker/backend/cpu/kernels/isa.h"
#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cpu {

// All whose instructions this machine has, those for other makers' processors too; the best last.
inline std::vector<const Kernels*> RunnableTables() {
  CpuFeatures features = MachineFeatures();
  features.zen4 = features.intel = true;
  return KernelsOf(features);
}

inline std::string TableName(const Kernels* table) {
  return table == ScalarFmaKernels()         ? "scalar_fma"
         : table == Avx2IntelKernels()       ? "avx2_intel"
         : table == Avx512VnniZen4Kernels()  ? "avx512vnni_zen4"
         : table == Avx512VnniIntelKernels() ? "avx512vnni_intel"
                                             : table->isa;
}

}  // namespace strata::cpu

#endif  // STRATA_TESTS_WORKER_BACKEND_TABLES_H_
