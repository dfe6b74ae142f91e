#include "coordinator/engine/steps_in_flight.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

namespace strata {
namespace {

TimePoint Ms(int64_t ms) { return TimePoint{0} + milliseconds(ms); }

SentStep Carrying(StepsInFlight* steps, uint64_t session, uint32_t position, uint32_t rows) {
  SentStep sent = steps->Begin();
  SentItem& item = sent.items.emplace_back();
  item.session = session;
  item.position = position;
  item.rows = rows;
  return sent;
}

TEST(StepsInFlight, StepsAreNumberedAnewInEachEpoch) {
  StepsInFlight steps;
  EXPECT_EQ(steps.Begin().step, 1u);
  EXPECT_EQ(steps.Begin().step, 2u);
  steps.Add(steps.Begin(), Ms(0));
  EXPECT_EQ(steps.Commit(Ms(1)).step, 3u);
  EXPECT_EQ(steps.committed(), 3u);
  EXPECT_EQ(steps.Begin().committed_step, 3u) << "the stages are told";
  steps.BeginEpoch();
  EXPECT_EQ(steps.committed(), 0u);
  EXPECT_EQ(steps.Begin().step, 1u);
}

TEST(StepsInFlight, OneThatNoOtherJoinsIsAlone) {
  StepsInFlight steps;
  steps.Add(steps.Begin(), Ms(0));
  const SentStep alone = steps.Commit(Ms(1));
  EXPECT_TRUE(alone.first && alone.alone);
  steps.Add(steps.Begin(), Ms(2));
  steps.Add(steps.Begin(), Ms(3));
  const SentStep joined = steps.Commit(Ms(4));
  EXPECT_TRUE(joined.first);
  EXPECT_FALSE(joined.alone);
  EXPECT_FALSE(steps.Commit(Ms(5)).first);
}

TEST(StepsInFlight, TheyAreGivenUpWhenNoResultComes) {
  StepsInFlight steps;
  EXPECT_EQ(steps.GivenUpAt(milliseconds(10)), std::nullopt);
  EXPECT_EQ(steps.LastSign(Ms(5)), Ms(5)) << "an idle pipeline owes nothing";
  steps.Add(steps.Begin(), Ms(6));
  steps.Add(steps.Begin(), Ms(8));
  EXPECT_EQ(steps.GivenUpAt(milliseconds(10)), Ms(16)) << "from the dispatch into an idle one";
  steps.Commit(Ms(9));
  EXPECT_EQ(steps.GivenUpAt(milliseconds(10)), Ms(19)) << "from the newest result";
  EXPECT_EQ(steps.LastSign(Ms(30)), Ms(9));
}

TEST(StepsInFlight, ReachIsHowFarTheyGoIntoEachSession) {
  StepsInFlight steps;
  steps.Add(Carrying(&steps, 1, 0, 8), Ms(0));
  steps.Add(Carrying(&steps, 2, 0, 4), Ms(0));
  steps.Add(Carrying(&steps, 1, 8, 3), Ms(0));
  EXPECT_EQ(steps.Reach(), (std::map<uint64_t, uint32_t>{{1, 11}, {2, 4}}));
  steps.Clear();
  EXPECT_TRUE(steps.Reach().empty());
}

}  // namespace
}  // namespace strata
