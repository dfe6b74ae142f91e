#include "coordinator/deployment/deployment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/coordinator/deployment/deployment_fixture.h"

namespace strata {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

TEST_F(DeploymentTest, LoadsFencesLinksAndIsReady) {
  Load();
  EXPECT_EQ(deployment_.state(), DeploymentState::kLoading);
  EXPECT_EQ(deployment_.plan().epoch(), 1u);
  const std::vector<v1::Load> loads = host_.TakeLoads("a");
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].next_node(), "b");
  EXPECT_EQ(loads[0].next_incarnation(), 12u);
  EXPECT_EQ(host_.TakeLoads("b")[0].next_incarnation(), 99u) << "the coordinator's own";
  EXPECT_FALSE(deployment_.serves());
  BothReady();
  EXPECT_EQ(host_.TakeFences("a").size(), 1u);
  Ack("a", 1);
  EXPECT_EQ(host_.dialled.size(), 0u) << "b has not answered";
  EXPECT_EQ(deployment_.pipeline()->UnfencedNodes(), std::vector<std::string>{"b"});
  Ack("b", 1);
  ASSERT_EQ(host_.dialled.size(), 1u);
  EXPECT_EQ(host_.dialled[0].request.address, "a:1");
  host_.OpenLast();
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  EXPECT_EQ(host_.placements.back(), std::make_pair(true, true));
  ASSERT_EQ(host_.frames.size(), 1u);
  EXPECT_TRUE(host_.frames[0].header.resync());
}

TEST_F(DeploymentTest, ProgressOfAnotherEpochOrTwiceCountsForNothing) {
  Load();
  Progress("a", v1::LoadProgress::PHASE_READY, 1);
  Progress("b", v1::LoadProgress::PHASE_READY, 7);
  Progress("c", v1::LoadProgress::PHASE_READY, 1);
  EXPECT_EQ(deployment_.engine(), nullptr);
  Progress("b", v1::LoadProgress::PHASE_READY, 1);
  const Engine* engine = deployment_.engine();
  ASSERT_NE(engine, nullptr);
  Progress("b", v1::LoadProgress::PHASE_READY, 1);
  EXPECT_EQ(deployment_.engine(), engine);
  EXPECT_EQ(host_.TakeFences("b").size(), 1u);
}

TEST_F(DeploymentTest, AFailedLoadNamesItsNodeAndUnloadsTheOthers) {
  Load();
  Progress("b", v1::LoadProgress::PHASE_FAILED, 1);
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
  EXPECT_EQ(ReasonOf(deployment_.problem()), "MEMORY_LIMIT");
  EXPECT_EQ(DetailOf(deployment_.problem()).node(), "b");
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
  EXPECT_EQ(host_.placements.back(), std::make_pair(false, false));
}

TEST_F(DeploymentTest, AWorkerThatNeverAnswersIsNamedAndFailsTheLoadInTime) {
  Load();
  const TimePoint sent = host_.now;
  ASSERT_EQ(deployment_.Waits().size(), 2u);
  EXPECT_EQ(deployment_.Waits()[1].node, "b");
  EXPECT_THAT(deployment_.Waits()[1].what, HasSubstr("layers 2-3 of model m"));
  host_.now = sent + kLoadTimeout - seconds(1);
  Progress("a", v1::LoadProgress::PHASE_FETCHING, 1);
  deployment_.Tick(host_.now);
  EXPECT_EQ(deployment_.state(), DeploymentState::kLoading);
  EXPECT_EQ(deployment_.NextWake(), sent + kLoadTimeout);
  EXPECT_EQ(deployment_.Progress()[0].silent_s(), 0);
  EXPECT_EQ(deployment_.Progress()[1].silent_s(), ToMs(kLoadTimeout - seconds(1)) / 1e3);
  host_.now = sent + kLoadTimeout;
  deployment_.Tick(host_.now);
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
  EXPECT_EQ(ReasonOf(deployment_.problem()), "LOAD_TIMEOUT");
  EXPECT_EQ(DetailOf(deployment_.problem()).node(), "b");
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
}

TEST_F(DeploymentTest, AWorkerThatGetsFurtherMayTakeAsLongAsItNeeds) {
  Load();
  Progress("b", v1::LoadProgress::PHASE_READY, 1);
  for (uint64_t done = 0; done < 10; ++done) {
    host_.now += kLoadTimeout - seconds(1);
    Progress("a", v1::LoadProgress::PHASE_FETCHING, 1, done);
    deployment_.Tick(host_.now);
    ASSERT_EQ(deployment_.state(), DeploymentState::kLoading);
  }
  // Saying the same again is no progress.
  host_.now += kLoadTimeout - seconds(1);
  Progress("a", v1::LoadProgress::PHASE_FETCHING, 1, 9);
  host_.now += seconds(1);
  deployment_.Tick(host_.now);
  EXPECT_EQ(ReasonOf(deployment_.problem()), "LOAD_TIMEOUT");
}

TEST_F(DeploymentTest, OnlyTheNewestResultsLinkCounts) {
  MakeReady();
  const uint64_t older = OpenResults();
  const uint64_t newer = OpenResults();
  ASSERT_NE(older, 0u);
  ASSERT_NE(newer, 0u);
  const uint64_t faults = deployment_.engine()->Snapshot(host_.now).counters.faults;
  deployment_.pipeline()->OnResultsClosed(older, absl::UnavailableError("gone"));
  EXPECT_EQ(deployment_.engine()->Snapshot(host_.now).counters.faults, faults);
  deployment_.pipeline()->OnResultsClosed(newer, absl::UnavailableError("gone"));
  EXPECT_EQ(deployment_.engine()->Snapshot(host_.now).counters.faults, faults + 1);
}

TEST_F(DeploymentTest, ResultsOfAnotherNodeLifeOrEpochAreNotAccepted) {
  MakeReady();
  v1::LinkOpen open;
  open.set_from_node("b");
  open.set_from_incarnation(12);
  open.set_epoch(deployment_.plan().epoch());
  open.set_to_stage(2);
  EXPECT_TRUE(deployment_.pipeline()->AcceptResults(open).has_value());
  v1::LinkOpen other = open;
  other.set_from_node("a");
  EXPECT_FALSE(deployment_.pipeline()->AcceptResults(other).has_value());
  other = open;
  other.set_from_incarnation(11);
  EXPECT_FALSE(deployment_.pipeline()->AcceptResults(other).has_value());
  other = open;
  other.set_epoch(open.epoch() + 1);
  EXPECT_FALSE(deployment_.pipeline()->AcceptResults(other).has_value());
}

TEST_F(DeploymentTest, ALinkThatOpensTooLateIsClosed) {
  Load();
  BothReady();
  Ack("a", 1);
  Ack("b", 1);
  deployment_.OnNodeLost("b");
  host_.OpenLast();
  EXPECT_EQ(host_.links_open, 0);
}

TEST_F(DeploymentTest, UnloadingEndsSessionsWithItsReason) {
  MakeReady();
  const auto sink = Submit("r1", 10, 10);
  deployment_.Unload(Error(absl::StatusCode::kAborted, "UNLOADED", "unloaded"));
  EXPECT_EQ(ReasonOf(sink->failed), "UNLOADED");
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
  EXPECT_EQ(host_.TakeUnloads("b").size(), 1u);
}

}  // namespace
}  // namespace strata
