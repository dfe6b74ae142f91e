// Over random shapes and all tails: every table that this machine runs gives the bits of the scalar
// table.
#include "tests/worker/backend/kernel_cases.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/worker/backend/tables.h"
#include "tests/worker/backend/tile_emulator.h"
#include "worker/backend/cpu/kernels/isa.h"

namespace strata::cpu {
namespace {

#ifdef STRATA_SANITIZED
constexpr bool kFew = true;
#else
constexpr bool kFew = false;
#endif

const std::vector<KernelCase>& ScalarCases() {
  static const std::vector<KernelCase> cases = RunKernelCases(*ScalarKernels(), kFew);
  return cases;
}

// What really ran, also where somebody reads only the results.
void Report(const char* property, const std::vector<std::string>& tables) {
  const std::string names = absl::StrJoin(tables, " ");
  ::testing::Test::RecordProperty(property, names);
  std::printf("%s: %s; %zu cases each\n", property, names.c_str(), ScalarCases().size());
}

TEST(KernelCasesTest, EveryInstructionSetOfThisMachineGivesTheScalarBits) {
  std::vector<std::string> ran;
  for (const Kernels* table : RunnableTables()) {
    ran.push_back(TableName(table));
    EXPECT_EQ(Difference(ScalarCases(), RunKernelCases(*table, kFew)), "") << ran.back();
  }
  Report("ran", ran);
}

// The kernels as they are compiled, where the machine has all that they need but tiles.
TEST(KernelCasesTest, TheKernelsWithTilesGiveTheScalarBitsWhereTilesAreEmulated) {
  const CpuFeatures machine = MachineFeatures();
  if (machine.amx || !machine.avx512vnni || AmxKernels() == nullptr || !EmulateTiles()) {
    GTEST_SKIP() << (machine.amx ? "this machine has tiles" : "needs avx512vnni, on Linux");
  }
  EXPECT_EQ(Difference(ScalarCases(), RunKernelCases(*AmxKernels(), kFew)), "");
  EXPECT_GT(EmulatedTileInstructions(), 1000u);
  Report("emulated", {TableName(AmxKernels())});
}

TEST(KernelCasesTest, ADifferentBitIsNamed) {
  std::vector<KernelCase> cases = ScalarCases();
  cases[3].digest ^= 1;
  EXPECT_NE(Difference(ScalarCases(), cases).find(cases[3].name), std::string::npos);
  cases = ScalarCases();
  cases.pop_back();
  EXPECT_NE(Difference(ScalarCases(), cases), "");
}

}  // namespace
}  // namespace strata::cpu
