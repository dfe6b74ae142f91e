// Over random shapes and all tails: every instruction set's loops, over scalar code, give the bits
// of the scalar table.
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "tests/worker/backend/kernel_cases.h"
#include "tests/worker/backend/stand_ins.h"
#include "worker/backend/cpu/kernels/isa.h"

namespace strata::cpu {
namespace {

#ifdef STRATA_SANITIZED
constexpr bool kFew = true;
#else
constexpr bool kFew = false;
#endif

TEST(KernelLoopsTest, EveryInstructionSetsLoopsGiveTheScalarBits) {
  const std::vector<KernelCase> scalar = RunKernelCases(*ScalarKernels(), kFew);
  const auto stand_ins = StandIns();
  ASSERT_FALSE(stand_ins.empty());
  for (const auto& [name, table] : stand_ins) {
    EXPECT_EQ(Difference(scalar, RunKernelCases(*table, kFew)), "") << name;
    // What really ran, also where somebody reads only the results.
    std::printf("%s: %zu cases\n", name.c_str(), scalar.size());
  }
}

}  // namespace
}  // namespace strata::cpu
