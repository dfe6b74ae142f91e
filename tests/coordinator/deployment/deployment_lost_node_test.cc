#include <gtest/gtest.h>

#include "common/status.h"
#include "coordinator/deployment/deployment.h"
#include "tests/coordinator/deployment/deployment_fixture.h"

namespace strata {
namespace {

using std::chrono::seconds;

TEST_F(DeploymentTest, ALostNodeIsWaitedForAndItsSessionsFailAfterAWhile) {
  MakeReady();
  const auto sink = Submit("r1", 10, 10);
  deployment_.OnNodeLost("elsewhere");
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  deployment_.OnNodeLost("b");
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  EXPECT_FALSE(deployment_.serves());
  EXPECT_EQ(host_.links_open, 0);
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
  ASSERT_TRUE(deployment_.NextWake().has_value());
  EXPECT_LE(*deployment_.NextWake(), host_.now + seconds(11)) << "step and recovery timeout";
  EXPECT_TRUE(sink->failed.ok());
  host_.now = *deployment_.NextWake();
  deployment_.Tick(host_.now);
  EXPECT_EQ(ReasonOf(sink->failed), "NODE_LOST");
  EXPECT_EQ(DetailOf(sink->failed).node(), "b");
  EXPECT_EQ(deployment_.engine(), nullptr);
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  const uint64_t epoch = deployment_.plan().epoch();
  deployment_.Load({{"a", 11}, {"b", 13}});
  EXPECT_GT(deployment_.plan().epoch(), epoch);
  EXPECT_EQ(host_.TakeLoads("a")[0].next_incarnation(), 13u);
}

TEST_F(DeploymentTest, ALostNodeWithoutSessionsIsWaitedForWithoutAnEngine) {
  MakeReady();
  deployment_.OnNodeLost("b");
  EXPECT_EQ(deployment_.engine(), nullptr);
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
}

TEST_F(DeploymentTest, SessionsGoOnOnceALostNodeIsBackAndLoaded) {
  MakeReady();
  const auto sink = Submit("r1", 10, 10);
  deployment_.OnNodeLost("b");
  deployment_.Load({{"a", 11}, {"b", 13}});
  // What was dialled for the loss before is of no account.
  host_.OpenLast();
  EXPECT_EQ(deployment_.state(), DeploymentState::kLoading);
  // It is lost once more, in the middle of loading.
  deployment_.OnNodeLost("b");
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  deployment_.Load({{"a", 11}, {"b", 14}});
  BothReady();
  EXPECT_TRUE(sink->failed.ok());
  BothAckAndLink();
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  EXPECT_TRUE(deployment_.serves());
  ASSERT_TRUE(host_.frames.back().header.resync());
  EXPECT_EQ(host_.frames.back().header.epoch(), deployment_.plan().epoch());
  Commit(OpenResults(14), 32);
  EXPECT_EQ(host_.frames.back().header.items(0).sequence().request_id(), "r1");
  EXPECT_EQ(host_.frames.back().header.items(0).position(), 0u) << "from its tokens";
}

TEST_F(DeploymentTest, SessionsThatWaitForANodeMayBeCancelledAndItsLoadMayFail) {
  MakeReady();
  const auto first = Submit("r1", 10, 10);
  const auto second = Submit("r2", 10, 10);
  deployment_.OnNodeLost("b");
  EXPECT_TRUE(deployment_.engine()->Cancel("r1", absl::OkStatus(), host_.now));
  EXPECT_TRUE(first->done);
  deployment_.Load({{"a", 11}, {"b", 13}});
  Progress("b", v1::LoadProgress::PHASE_FAILED, deployment_.plan().epoch());
  EXPECT_EQ(ReasonOf(second->failed), "MEMORY_LIMIT");
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
}

TEST_F(DeploymentTest, RequestsEndBeforeALeavingNodeIsUnloadedAndNewOnesAreRefused) {
  MakeReady();
  const auto sink = Submit("r", 4, 8);
  deployment_.OnNodeLeaving("c");
  EXPECT_TRUE(deployment_.serves()) << "another's node";
  deployment_.OnNodeLeaving("b");
  EXPECT_FALSE(deployment_.serves());
  EXPECT_EQ(ReasonOf(deployment_.problem()), "NODE_STOPPED");
  EXPECT_EQ(DetailOf(deployment_.problem()).node(), "b");
  deployment_.Tick(host_.Now());
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  EXPECT_TRUE(host_.TakeUnloads("b").empty());
  EXPECT_TRUE(deployment_.engine()->Cancel("r", absl::OkStatus(), host_.Now()));
  EXPECT_TRUE(sink->done);
  deployment_.Tick(host_.Now());
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
  EXPECT_EQ(host_.TakeUnloads("b").size(), 1u);
  Load();
  BothReady();
  BothAckAndLink();
  EXPECT_TRUE(deployment_.serves());
}

TEST_F(DeploymentTest, ALoadOnALeavingNodeEndsAtOnce) {
  Load();
  deployment_.OnNodeLeaving("a");
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
}

}  // namespace
}  // namespace strata
