#include "coordinator/engine/step_timing.h"

#include <gtest/gtest.h>

#include <cmath>

namespace strata {
namespace {

using std::chrono::seconds;

TEST(StepTiming, BeginsSmallWhenNothingIsKnown) {
  EXPECT_EQ(StepTiming({0, 0}, seconds(8), 512).TokenBudget(), 32u);
  EXPECT_EQ(StepTiming({0}, seconds(8), 16).TokenBudget(), 16u);
}

TEST(StepTiming, BeginsWithThePlan) {
  // 1000 ms for a step; the slower stage is predicted to take 10 ms a token.
  EXPECT_EQ(StepTiming({1, 10}, seconds(8), 512).TokenBudget(), 100u);
}

TEST(StepTiming, LearnsTheSlowestStage) {
  StepTiming timing({10, 10}, seconds(8), 4096);
  for (int i = 0; i < 200; ++i) {
    const uint32_t rows = 1 + static_cast<uint32_t>(i % 7) * 100;
    timing.Observe(0, {rows}, 50 + 0.5 * rows, false);
    timing.Observe(1, {rows}, 100 + 2.0 * rows, false);
  }
  EXPECT_NEAR(timing.TokenBudget(), (1000 - 100) / 2.0, 5);
  EXPECT_NEAR(timing.Costs()[0].Ms({100}), 100, 2);
}

TEST(StepTiming, SaysNothingOfStagesThatItDoesNotKnow) {
  StepTiming timing({1, 0}, seconds(8), 512);
  EXPECT_TRUE(timing.Costs().empty());
  timing.Observe(1, {10}, 20, false);
  ASSERT_EQ(timing.Costs().size(), 2u);
  EXPECT_NEAR(timing.Costs()[1].Ms({10}), 20, 1e-6);
}

TEST(StepTiming, ExpectsOfAStepWhatItsStagesAndHopsTake) {
  StepTiming timing({0, 0}, seconds(8), 512);
  EXPECT_LT(timing.ExpectedMs({10}, {}), 0) << "nothing is known";
  timing.Observe(0, {10}, 20, false);
  timing.Observe(1, {10}, 30, false);
  EXPECT_NEAR(timing.ExpectedMs({10}, {}), 50, 1e-6);
  timing.ObserveRoundTrip(56, 50);  // Three hops of 2 ms.
  EXPECT_NEAR(timing.ExpectedMs({10}, {}), 56, 1e-6);
  const SliceWork half[] = {{.stage = 1, .work = {10}, .share = 0.5}};
  EXPECT_NEAR(timing.ExpectedMs({}, half), 6 + 15, 1e-6);
}

TEST(StepTiming, KnowsWhatAHopTakes) {
  StepTiming timing({1, 1, 1}, seconds(8), 512);
  EXPECT_EQ(timing.HopMs(), 0);
  timing.ObserveRoundTrip(3.4, 3.0);  // Four hops.
  EXPECT_NEAR(timing.HopMs(), 0.1, 1e-9);
  for (int i = 0; i < 300; ++i) {
    timing.ObserveRoundTrip(i % 10 == 0 ? 1000.0 : 5.8, 5.0);
  }
  EXPECT_NEAR(timing.HopMs(), 0.2, 1e-9) << "neither an old step nor a slow one counts for much";
  timing.ObserveRoundTrip(1.0, 5.0);
  timing.ObserveRoundTrip(NAN, 5.0);
  EXPECT_NEAR(timing.HopMs(), 0.2, 1e-9) << "what is no time is ignored";
}

TEST(StepTiming, FollowsAMachineThatGotSlower) {
  StepTiming timing({1}, seconds(8), 4096);
  for (int i = 0; i < 100; ++i) {
    const uint32_t rows = 1 + static_cast<uint32_t>(i % 5) * 50;
    timing.Observe(0, {rows}, 0.2 * rows, false);
  }
  for (int i = 0; i < 300; ++i) {
    const uint32_t rows = 1 + static_cast<uint32_t>(i % 5) * 50;
    timing.Observe(0, {rows}, 10.0 * rows, false);
  }
  EXPECT_NEAR(timing.TokenBudget(), 100, 5);
}

TEST(StepTiming, TellsStepsThatAreAloneFromThoseBesideOthers) {
  StepTiming timing({10, 10}, seconds(8), 4096);
  for (int i = 0; i < 100; ++i) {
    timing.Observe(0, {4}, 30, false);
    timing.Observe(1, {4}, 30, false);
  }
  EXPECT_NEAR(timing.CostsAlone()[1].Ms({4}), 30, 1) << "nothing else is known of them";
  EXPECT_LT(timing.CostsAlone()[1].HopefulMs({4}), 20) << "but that is a guess";
  EXPECT_GT(timing.Costs()[1].HopefulMs({4}), 27);
  for (int i = 0; i < 100; ++i) {
    timing.Observe(0, {4}, 18, true);
    timing.Observe(1, {4}, 17, true);
  }
  EXPECT_NEAR(timing.CostsAlone()[0].Ms({4}), 18, 0.5);
  EXPECT_NEAR(timing.CostsAlone()[1].Ms({4}), 17, 0.5);
  EXPECT_NEAR(timing.Costs()[1].Ms({4}), 30, 1) << "as it was";
}

TEST(StepTiming, IsLessSureOfAKindThatWasNotSeenForLong) {
  StepTiming timing({10, 10}, seconds(8), 4096);
  for (int i = 0; i < 100; ++i) {
    timing.Observe(0, {4}, 18, true);
    timing.Observe(1, {4}, 18, true);
    timing.Observe(0, {4}, 30, false);
    timing.Observe(1, {4}, 30, false);
  }
  const double sure = timing.Costs()[0].HopefulMs({4});
  for (int i = 0; i < 5000; ++i) {
    timing.Observe(0, {4}, 18, true);
    timing.Observe(1, {4}, 18, true);
  }
  EXPECT_NEAR(timing.Costs()[0].Ms({4}), 30, 1);
  EXPECT_LT(timing.Costs()[0].HopefulMs({4}), 0.9 * sure);
}

TEST(StepTiming, StepsOfOneStageNeverMeet) {
  StepTiming timing({10}, seconds(8), 4096);
  EXPECT_TRUE(timing.CostsAlone().empty());
  for (int i = 0; i < 100; ++i) {
    timing.Observe(0, {4}, 18, true);
  }
  EXPECT_TRUE(timing.CostsAlone().empty());
  EXPECT_NEAR(timing.Costs()[0].Ms({4}), 18, 0.5);
}

TEST(StepTiming, GrowsByFactorsOnly) {
  StepTiming timing({0}, seconds(8), 4096);
  timing.Observe(0, {32}, 0.001, false);
  EXPECT_EQ(timing.TokenBudget(), 128u);
}

TEST(StepTiming, IgnoresWhatIsNoTime) {
  StepTiming timing({10}, seconds(8), 4096);
  timing.Observe(0, {10}, NAN, false);
  timing.Observe(0, {10}, -1, false);
  timing.Observe(0, {10}, INFINITY, false);
  timing.Observe(0, {0}, 1, false);
  timing.Observe(9, {10}, 1, false);
  EXPECT_EQ(timing.TokenBudget(), 100u);
}

}  // namespace
}  // namespace strata
