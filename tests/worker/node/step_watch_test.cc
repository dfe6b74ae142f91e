#include "worker/node/step_watch.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(StepWatchTest, AStepHangsOnceItWasComputedForTheStepTimeout) {
  StepWatch watch(milliseconds(100));
  EXPECT_FALSE(watch.Hangs(1, milliseconds(80)));  // Of before the step.
  EXPECT_FALSE(watch.Hangs(1, milliseconds(60)));
  EXPECT_TRUE(watch.Hangs(1, milliseconds(40)));
  EXPECT_FALSE(watch.Hangs(1, milliseconds(99)));
  EXPECT_TRUE(watch.Hangs(1, milliseconds(1)));
}

TEST(StepWatchTest, AnotherStepOrNoneCountsFromItsBeginning) {
  StepWatch watch(milliseconds(100));
  EXPECT_FALSE(watch.Hangs(1, milliseconds(0)));
  EXPECT_FALSE(watch.Hangs(1, milliseconds(90)));
  EXPECT_FALSE(watch.Hangs(2, milliseconds(90)));
  EXPECT_FALSE(watch.Hangs(2, milliseconds(90)));
  EXPECT_FALSE(watch.Hangs(0, milliseconds(500)));
  EXPECT_FALSE(watch.Hangs(0, milliseconds(500)));
  EXPECT_FALSE(watch.Hangs(2, milliseconds(500)));
}

}  // namespace
}  // namespace strata
