#include "worker/backend/cpu/kernels/choose_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "common/status.h"
#include "worker/backend/cpu/kernels/isa.h"

namespace strata::cpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr CpuFeatures kXeon = {
    .fma = true, .avx2 = true, .avx512 = true, .avx512vnni = true, .intel = true, .amx = true};
constexpr CpuFeatures kAlderLake = {.fma = true, .avx2 = true, .avxvnni = true, .intel = true};
constexpr CpuFeatures kIceLake = {
    .fma = true, .avx2 = true, .avx512 = true, .avx512vnni = true, .intel = true};
constexpr CpuFeatures kZen5 = {.fma = true, .avx2 = true, .avx512 = true, .avx512vnni = true};
constexpr CpuFeatures kOldXeon = {.fma = true, .avx2 = true, .avx512 = true, .intel = true};
constexpr CpuFeatures kSkylake = {.fma = true, .avx2 = true, .intel = true};
constexpr CpuFeatures kArm = {.neon = true, .neondot = true};
constexpr CpuFeatures kOldArm = {.neon = true};

// The table that is taken, or the one for machines of any kind where the build has none.
const Kernels* Or(const Kernels* table, const Kernels* other) {
  return table != nullptr ? table : other;
}

TEST(ChooseKernelsTest, TheBestThatTheMachineHas) {
  const Kernels* const scalar = ScalarKernels();
  const Kernels* const fma = Or(ScalarFmaKernels(), scalar);
  EXPECT_EQ(*ChooseKernels("", {}), scalar);
  EXPECT_EQ(*ChooseKernels("", {.fma = true}), fma);
  EXPECT_EQ(*ChooseKernels("", {.fma = true, .avx2 = true}), Or(Avx2Kernels(), fma));
  EXPECT_EQ(*ChooseKernels("", kAlderLake), Or(AvxVnniKernels(), fma));
  EXPECT_EQ(*ChooseKernels("", kOldXeon), Or(Avx512Kernels(), fma));
  EXPECT_EQ(*ChooseKernels("", kZen5), Or(Avx512VnniKernels(), fma));
  EXPECT_EQ(*ChooseKernels("", kXeon), Or(AmxKernels(), *ChooseKernels("", kIceLake)));
  EXPECT_EQ(*ChooseKernels("", kOldArm), Or(NeonKernels(), scalar));
  EXPECT_EQ(*ChooseKernels("", kArm), Or(NeonDotKernels(), scalar));
}

TEST(ChooseKernelsTest, OneThatIsNamed) {
  EXPECT_EQ(*ChooseKernels("scalar", kXeon), Or(ScalarFmaKernels(), ScalarKernels()));
  EXPECT_EQ(*ChooseKernels("scalar", kArm), ScalarKernels());
  EXPECT_EQ(*ChooseKernels("avx2", kAlderLake),
            Or(Avx2IntelKernels(), *ChooseKernels("", kAlderLake)));
  EXPECT_EQ(*ChooseKernels("avx512", kXeon), Or(Avx512Kernels(), *ChooseKernels("", kXeon)));
  EXPECT_EQ(*ChooseKernels("neon", kArm), Or(NeonKernels(), ScalarKernels()));
}

TEST(ChooseKernelsTest, ProcessorsThatReadMemoryOtherwiseHaveTheirOwnOfTheSameInstructions) {
  constexpr CpuFeatures kZen4 = {
      .fma = true, .avx2 = true, .avx512 = true, .avx512vnni = true, .zen4 = true};
  const std::pair<CpuFeatures, const Kernels*> kinds[] = {{kSkylake, Avx2IntelKernels()},
                                                          {kZen4, Avx512VnniZen4Kernels()},
                                                          {kIceLake, Avx512VnniIntelKernels()}};
  for (const auto& [features, own] : kinds) {
    const Kernels* const chosen = *ChooseKernels("", features);
    EXPECT_EQ(chosen, Or(own, *ChooseKernels("scalar", kXeon)));
    EXPECT_EQ(*ChooseKernels(chosen->isa, features), chosen);
    if (features.avx512) {
      EXPECT_EQ(*ChooseKernels("avx512", features), *ChooseKernels("avx512", kOldXeon));
    }
  }
  EXPECT_EQ(*ChooseKernels("avx2", kZen4), *ChooseKernels("", {.fma = true, .avx2 = true}));
}

TEST(ChooseKernelsTest, AMachineWithTilesCanDoWithoutThem) {
  EXPECT_EQ(*ChooseKernels("amx", kXeon), *ChooseKernels("", kXeon));
  EXPECT_EQ(*ChooseKernels("avx512vnni", kXeon), *ChooseKernels("", kIceLake));
}

TEST(ChooseKernelsTest, WhatTheMachineLacksIsRefusedNamingWhatItHas) {
  const auto refused = ChooseKernels("avx512vnni", kOldXeon);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refused.status()), "ISA_ABSENT");
  EXPECT_THAT(refused.status().message(), HasSubstr("scalar, avx2, avx512"));
  EXPECT_FALSE(ChooseKernels("neondot", kOldArm).ok());
  EXPECT_FALSE(ChooseKernels("neon", kXeon).ok());
  EXPECT_FALSE(ChooseKernels("AVX2", kXeon).ok());
}

TEST(ChooseKernelsTest, NamesAreInOrder) {
  EXPECT_THAT(IsasOf({}), ElementsAre("scalar"));
  EXPECT_THAT(IsasOf(kXeon), ElementsAre("scalar", "avx2", "avx512", "avx512vnni", "amx"));
  EXPECT_THAT(IsasOf(kAlderLake), ElementsAre("scalar", "avx2", "avxvnni"));
  EXPECT_THAT(IsasOf(kArm), ElementsAre("scalar", "neon", "neondot"));
}

}  // namespace
}  // namespace strata::cpu
