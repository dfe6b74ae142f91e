// The CPU backend as tests want it: with the instruction set that they name, or not at all.
#ifndef STRATA_TESTS_WORKER_BACKEND_CPU_BACKEND_H_
#define STRATA_TESTS_WORKER_BACKEND_CPU_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "worker/backend/backend.h"

namespace strata::testing {

// Fails the test where the backend computes with another set than `isa` ("": the best), which it
// does where this build has no kernels for it. What ran is in the test's properties, "ran_avx2".
std::unique_ptr<Backend> CpuBackendOn(const std::string& isa, uint32_t threads);

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_BACKEND_CPU_BACKEND_H_
