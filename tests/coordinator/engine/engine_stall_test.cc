// A pipeline that gives no sign of life under nodes that live: how soon it is fenced, and left.
#include <gtest/gtest.h>

#include "common/status.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

using std::chrono::seconds;

EngineConfig StallConfig() {
  EngineConfig config = MakeConfig(2);
  config.recovery_timeout = seconds(60);
  return config;
}

// One answer under way, of which some steps were committed; the next one is on its way.
class EngineStall : public ::testing::Test {
 protected:
  void SetUp() override {
    sink_ = cluster_.Submit(request_);
    cluster_.Start();
    for (int i = 0; i < 1000 && sink_->tokens.size() < 12; ++i) {
      cluster_.AcknowledgeFence();
      cluster_.Deliver(0);
      cluster_.Deliver(1);
      cluster_.Deliver(2);
    }
    ASSERT_EQ(sink_->tokens.size(), 12u);
  }

  void ExpectTheRightAnswer() {
    cluster_.RunToEnd();
    cluster_.Settle();
    EXPECT_EQ(sink_->tokens, OracleAnswer(request_.prompt, 40, 97));
    cluster_.ExpectEmpty();
  }

  const SessionRequest request_ = MakeRequest("r1", 20, 40);
  SimCluster cluster_{StallConfig()};
  std::shared_ptr<SinkRecord> sink_;
};

TEST_F(EngineStall, IsFencedLongBeforeTheStepTimeoutAndGoesOn) {
  const uint64_t epoch = cluster_.engine().epoch();
  cluster_.Advance(milliseconds(1990));
  EXPECT_EQ(cluster_.engine().epoch(), epoch);
  cluster_.Advance(milliseconds(20));
  EXPECT_EQ(cluster_.engine().epoch(), epoch + 1);
  EXPECT_TRUE(cluster_.placed_elsewhere.empty()) << "the links are opened anew first";
  ExpectTheRightAnswer();
  EXPECT_EQ(cluster_.Snapshot().counters.faults, 1u);
}

TEST_F(EngineStall, IsLeftForOtherNodesWhenItStallsAgain) {
  cluster_.places_elsewhere = true;
  cluster_.unfenced = {"node1"};
  cluster_.Advance(milliseconds(2010));
  cluster_.pending_fence.reset();  // Nobody acknowledges it.
  cluster_.Advance(milliseconds(1980));
  EXPECT_TRUE(cluster_.placed_elsewhere.empty());
  cluster_.Advance(milliseconds(30));
  ASSERT_EQ(cluster_.placed_elsewhere.size(), 1u);
  EXPECT_EQ(DetailOf(cluster_.placed_elsewhere[0]).node(), "node1");
  EXPECT_FALSE(sink_->ended());
}

TEST_F(EngineStall, BehindAFenceThatAllAcknowledgedNamesNobody) {
  cluster_.places_elsewhere = true;
  cluster_.unfenced = {"node0",
                       "node1"};  // As long as they are asked, which is no fault of theirs.
  cluster_.Advance(milliseconds(2010));
  ASSERT_TRUE(cluster_.AcknowledgeFence());
  for (int i = 0; i < 10 && cluster_.Snapshot().state != PipelineState::kRunning; ++i) {
    cluster_.Deliver(0);
    cluster_.Deliver(1);
    cluster_.Deliver(2);
  }
  ASSERT_EQ(cluster_.Snapshot().state, PipelineState::kRunning);
  cluster_.Advance(milliseconds(2010));
  EXPECT_EQ(cluster_.Snapshot().counters.faults, 2u);
  EXPECT_TRUE(cluster_.placed_elsewhere.empty());
  ExpectTheRightAnswer();
}

TEST_F(EngineStall, OfStepsThatGotSlowerEndsWithTheSecond) {
  // Each step takes four seconds from now on.
  for (int i = 0; i < 40 && !sink_->ended(); ++i) {
    cluster_.AcknowledgeFence();
    while (cluster_.Snapshot().state != PipelineState::kRunning && cluster_.Deliver(0)) {
      cluster_.Deliver(1);
      cluster_.Deliver(2);
    }
    cluster_.Advance(milliseconds(2010));
    cluster_.Advance(milliseconds(1990));
    for (uint32_t stage = 0; stage <= 2; ++stage) {
      while (cluster_.Deliver(stage)) {
      }
    }
  }
  ExpectTheRightAnswer();
  EXPECT_LE(cluster_.Snapshot().counters.faults, 8u) << "patience grows, and is kept for a while";
}

TEST_F(EngineStall, OfTheOneWhoWaitsIsNone) {
  cluster_.PassTime(seconds(5));
  cluster_.engine().ExcusePause(cluster_.now());
  cluster_.Advance(milliseconds(10));
  EXPECT_EQ(cluster_.Snapshot().counters.faults, 0u);
  ExpectTheRightAnswer();
}

TEST_F(EngineStall, FailsNobodySoonerWhereThereIsNoOtherPlace) {
  cluster_.Advance(milliseconds(2010));
  cluster_.pending_fence.reset();
  for (int i = 0; i < 20; ++i) {
    cluster_.Advance(seconds(3));
    cluster_.pending_fence.reset();
  }
  EXPECT_FALSE(sink_->ended()) << "step and recovery timeout are not over";
  EXPECT_FALSE(cluster_.placed_elsewhere.empty());
  cluster_.Advance(seconds(12));
  EXPECT_TRUE(sink_->failed.has_value());
}

TEST_F(EngineStall, OfTheFirstStepsIsAStepTimeout) {
  SimCluster fresh(StallConfig());
  const auto sink = fresh.Submit(request_);
  fresh.Start();
  fresh.AcknowledgeFence();
  fresh.Advance(seconds(9));
  EXPECT_EQ(fresh.Snapshot().counters.faults, 0u);
  fresh.Advance(seconds(2));
  EXPECT_EQ(fresh.Snapshot().counters.faults, 1u);
}

}  // namespace
}  // namespace strata
