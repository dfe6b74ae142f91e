// Names of tables of kernels, one each: several are of the same instruction set.
#ifndef STRATA_TESTS_WORKER_BACKEND_TABLE_NAME_H_
#define STRATA_TESTS_WORKER_BACKEND_TABLE_NAME_H_

#include <string>

#include "worker/backend/cpu/kernels.h"

namespace strata::cpu {

inline std::string TableName(const Kernels* table) {
  return table == ScalarFmaKernels()        ? "scalar_fma"
         : table == Avx512VnniZen4Kernels() ? "avx512vnni_zen4"
                                            : table->isa;
}

}  // namespace strata::cpu

#endif  // STRATA_TESTS_WORKER_BACKEND_TABLE_NAME_H_
