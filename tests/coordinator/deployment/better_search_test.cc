#include "coordinator/deployment/better_search.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

using std::chrono::seconds;

constexpr TimePoint kStart = seconds(1000);

TEST(BetterSearch, BeginsSomeTimeAfterTheLastNodeHasCome) {
  BetterSearch search(seconds(10));
  EXPECT_EQ(search.NextWake(), std::nullopt);
  search.OnNodes(kStart);
  EXPECT_FALSE(search.Due(kStart + seconds(9)));
  search.OnNodes(kStart + seconds(9));
  EXPECT_FALSE(search.Due(kStart + seconds(18)));
  EXPECT_EQ(search.NextWake(), kStart + seconds(19));
  ASSERT_TRUE(search.Due(kStart + seconds(19)));
  search.Asked();
  EXPECT_FALSE(search.Due(kStart + seconds(3600)));
  search.End();
  EXPECT_FALSE(search.Due(kStart + seconds(3600))) << "nothing has come since";
}

TEST(BetterSearch, WhoeverComesDuringASearchIsLookedAtAfterIt) {
  BetterSearch search(seconds(10));
  search.OnNodes(kStart);
  search.Asked();
  search.OnNodes(kStart + seconds(1));
  EXPECT_FALSE(search.Due(kStart + seconds(11)));
  search.End();
  EXPECT_TRUE(search.Due(kStart + seconds(11)));
}

TEST(BetterSearch, WaitsTwiceAsLongAfterEachMoveUpToALimit) {
  BetterSearch search(seconds(10));
  TimePoint now = kStart;
  for (const int expected : {20, 40, 80, 160, 320, 640, 640, 640}) {
    search.Asked();
    search.Moves(now);
    EXPECT_EQ(search.Delay(now), seconds(expected));
    now += seconds(1);
    search.OnNodes(now);
    EXPECT_FALSE(search.Due(now + seconds(expected - 1)));
    EXPECT_TRUE(search.Due(now + seconds(expected)));
  }
}

TEST(BetterSearch, ForgetsItsMovesOnceTheModelHasStayedForLong) {
  BetterSearch search(seconds(10));
  search.Moves(kStart);
  search.Moves(kStart);
  EXPECT_EQ(search.Delay(kStart), seconds(40));
  EXPECT_EQ(search.Delay(kStart + seconds(16 * 40 - 1)), seconds(40));
  EXPECT_EQ(search.Delay(kStart + seconds(16 * 40)), seconds(10));
  search.Moves(kStart + seconds(16 * 40));
  EXPECT_EQ(search.Delay(kStart + seconds(16 * 40)), seconds(20));
}

TEST(BetterSearch, StaysForRequestsThreeTimesAndNoLonger) {
  BetterSearch search(seconds(10));
  search.OnNodes(kStart);
  TimePoint now = kStart;
  for (int i = 0; i < 3; ++i) {
    now += seconds(10);
    ASSERT_TRUE(search.Due(now));
    search.Asked();
    EXPECT_TRUE(search.Postpone(now));
    EXPECT_FALSE(search.asked());
    EXPECT_FALSE(search.Due(now + seconds(9)));
  }
  now += seconds(10);
  ASSERT_TRUE(search.Due(now));
  search.Asked();
  EXPECT_FALSE(search.Postpone(now));
  EXPECT_TRUE(search.asked()) << "whoever looked has it move";
  search.Moves(now);
  search.OnNodes(now);
  search.Asked();
  EXPECT_TRUE(search.Postpone(now)) << "another time";
}

TEST(BetterSearch, NeverBeginsWithoutADelay) {
  BetterSearch search(seconds(0));
  search.OnNodes(kStart);
  EXPECT_EQ(search.NextWake(), std::nullopt);
}

}  // namespace
}  // namespace strata
