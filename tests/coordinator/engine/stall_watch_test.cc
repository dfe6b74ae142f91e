#include "coordinator/engine/stall_watch.h"

#include <gtest/gtest.h>

#include <cmath>

namespace strata {
namespace {

constexpr nanoseconds kLeast = milliseconds(2000);
constexpr nanoseconds kMost = milliseconds(10000);

void Commit(StallWatch* watch, int steps) {
  for (int i = 0; i < steps; ++i) {
    watch->NoteCommitted();
  }
}

TEST(StallWatch, WaitsForTheStepTimeoutUntilStepsAreKnown) {
  StallWatch watch(kLeast, kMost);
  EXPECT_EQ(watch.Patience(5), kMost);
  Commit(&watch, 7);
  EXPECT_EQ(watch.Patience(5), kMost);
  Commit(&watch, 1);
  EXPECT_EQ(watch.Patience(5), kLeast);
  watch.Begin();
  EXPECT_EQ(watch.Patience(5), kMost) << "other stages are not known";
}

TEST(StallWatch, WaitsFourTimesWhatIsExpected) {
  StallWatch watch(kLeast, kMost);
  Commit(&watch, 8);
  EXPECT_EQ(watch.Patience(500), kLeast);
  EXPECT_EQ(watch.Patience(1000), milliseconds(4000));
  EXPECT_EQ(watch.Patience(3000), kMost);
  EXPECT_EQ(watch.Patience(-1), kMost) << "nothing is expected";
  EXPECT_EQ(watch.Patience(NAN), kMost);
}

TEST(StallWatch, WithoutALeastOnlyTheStepTimeoutCounts) {
  StallWatch watch(nanoseconds(0), kMost);
  Commit(&watch, 100);
  EXPECT_EQ(watch.Patience(1), kMost);
}

TEST(StallWatch, GoesOnFromTheSecondStallInARow) {
  StallWatch watch(kLeast, kMost);
  Commit(&watch, 8);
  watch.NoteStall();
  EXPECT_FALSE(watch.GoesOn());
  EXPECT_EQ(watch.Patience(1), kLeast);
  watch.NoteStall();
  EXPECT_TRUE(watch.GoesOn());
  EXPECT_EQ(watch.Patience(1), kMost) << "what got slower comes through";
  watch.NoteCommitted();
  EXPECT_FALSE(watch.GoesOn());
}

TEST(StallWatch, AFalseAlarmMakesItPatientForAWhile) {
  StallWatch watch(kLeast, kMost);
  Commit(&watch, 8);
  watch.NoteStall();
  watch.NoteCommitted();
  EXPECT_EQ(watch.Patience(1), 2 * kLeast);
  watch.NoteStall();
  watch.NoteCommitted();
  EXPECT_EQ(watch.Patience(1), 4 * kLeast);
  for (int i = 0; i < 3; ++i) {
    watch.NoteStall();
    watch.NoteCommitted();
  }
  EXPECT_EQ(watch.Patience(1), kMost);
  Commit(&watch, 3 * 256);
  EXPECT_EQ(watch.Patience(1), kLeast) << "three quiet times, each halves it";
}

}  // namespace
}  // namespace strata
