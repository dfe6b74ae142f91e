// Every instruction set's loops, tiles and layouts over exact scalar code, for any machine: only
// its own instructions are left out.
#ifndef STRATA_TESTS_WORKER_BACKEND_STAND_INS_H_
#define STRATA_TESTS_WORKER_BACKEND_STAND_INS_H_

#include <string>
#include <utility>
#include <vector>

#include "worker/backend/cpu/kernels/kernels.h"

namespace strata::cpu {

// With the name of the table that each stands in for; "neon" for NEON with and without the dot
// product extension, which differ in nothing else.
std::vector<std::pair<std::string, const Kernels*>> StandIns();

}  // namespace strata::cpu

#endif  // STRATA_TESTS_WORKER_BACKEND_STAND_INS_H_
