// Every instruction set's loops, tiles and layouts over exact scalar code, for any machine: only
// its own instructions are left out.
#ifndef STRATA_TESTS_WORKER_BACKEND_STAND_INS_H_
#define STRATA_TESTS_WORKER_BACKEND_STAND_INS_H_

#include <vector>

#include "worker/backend/cpu/kernels.h"

namespace strata::cpu {

// Named after what they stand in for; "neon" for NEON with and without the dot product extension,
// which differ in nothing else.
std::vector<const Kernels*> StandIns();

}  // namespace strata::cpu

#endif  // STRATA_TESTS_WORKER_BACKEND_STAND_INS_H_
