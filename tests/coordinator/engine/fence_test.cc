#include "coordinator/engine/fence.h"

#include <gtest/gtest.h>

#include "common/status.h"
#include "coordinator/engine/fault_policy.h"

namespace strata {
namespace {

constexpr nanoseconds kStepTimeout = std::chrono::seconds(10);
constexpr nanoseconds kRecoveryTimeout = milliseconds(800);

TimePoint AtMs(int64_t ms) { return TimePoint{0} + milliseconds(ms); }

absl::Status Broken() {
  return Error(absl::StatusCode::kUnavailable, "LINK_CLOSED", "a link broke");
}

class FenceTest : public ::testing::Test {
 protected:
  void Run() {
    fence_.Start(AtMs(0));
    ASSERT_TRUE(fence_.OnFenced(7));
    fence_.OnCommitted();
    ASSERT_EQ(fence_.state(), PipelineState::kRunning);
  }

  Fence fence_{7, kStepTimeout, kRecoveryTimeout};
};

TEST_F(FenceTest, RunsOnceItsFirstStepIsCommitted) {
  EXPECT_EQ(fence_.state(), PipelineState::kNew);
  EXPECT_EQ(fence_.NextWake(), std::nullopt);
  fence_.Start(AtMs(0));
  EXPECT_EQ(fence_.state(), PipelineState::kFencing);
  EXPECT_FALSE(fence_.OnFenced(6)) << "of another epoch";
  EXPECT_TRUE(fence_.OnFenced(7));
  EXPECT_EQ(fence_.state(), PipelineState::kResync);
  EXPECT_TRUE(fence_.expects_results());
  EXPECT_FALSE(fence_.running());
  EXPECT_FALSE(fence_.OnFenced(7)) << "it is fenced";
  fence_.OnCommitted();
  EXPECT_TRUE(fence_.running());
  EXPECT_EQ(fence_.NextWake(), std::nullopt) << "there is no outage any more";
}

TEST_F(FenceTest, TheFirstFaultIsFencedAtOnceAndLaterOnesAfterABackoff) {
  Run();
  EXPECT_TRUE(fence_.HeedsLinkFault(7));
  EXPECT_FALSE(fence_.HeedsLinkFault(6));
  fence_.NoteFault(Broken(), AtMs(100), AtMs(100));
  EXPECT_TRUE(fence_.Recover(AtMs(100), kStepTimeout));
  EXPECT_EQ(fence_.epoch(), 8u);
  EXPECT_TRUE(fence_.fencing());
  fence_.NoteFault(Broken(), AtMs(200), AtMs(200));
  EXPECT_FALSE(fence_.Recover(AtMs(200), kStepTimeout));
  EXPECT_EQ(fence_.state(), PipelineState::kBackoff);
  EXPECT_EQ(fence_.epoch(), 8u) << "the next one begins with its fence";
  EXPECT_FALSE(fence_.HeedsLinkFault(8));
  EXPECT_FALSE(fence_.BackoffOver(AtMs(249)));
  EXPECT_TRUE(fence_.BackoffOver(AtMs(250)));
  EXPECT_EQ(fence_.NextWake(), AtMs(250));
  fence_.BeginFence(AtMs(250), kStepTimeout);
  EXPECT_EQ(fence_.epoch(), 9u);
  EXPECT_TRUE(fence_.OnFenced(9));
  fence_.OnCommitted();
  fence_.NoteFault(Broken(), AtMs(300), AtMs(300));
  EXPECT_TRUE(fence_.Recover(AtMs(300), kStepTimeout)) << "progress ends the row of faults";
}

TEST_F(FenceTest, AFenceThatIsNotAcknowledgedIsGivenUp) {
  fence_.Start(AtMs(0));
  EXPECT_FALSE(fence_.FenceTimedOut(AtMs(9999)));
  EXPECT_TRUE(fence_.FenceTimedOut(AtMs(10000)));
  fence_.GiveUpFence({"b"}, AtMs(10000));
  EXPECT_EQ(fence_.state(), PipelineState::kBackoff);
  EXPECT_EQ(DetailOf(fence_.last_fault()).reason(), "FENCE_TIMEOUT");
  EXPECT_EQ(DetailOf(fence_.last_fault()).node(), "b");
  EXPECT_FALSE(fence_.BackoffOver(AtMs(10049)));
  EXPECT_TRUE(fence_.BackoffOver(AtMs(10050))) << "never at once";
}

TEST_F(FenceTest, AFenceAfterAStallIsGivenUpAsSoonAsItIsToldTo) {
  Run();
  fence_.NoteFault(Broken(), AtMs(1000), AtMs(1000));
  EXPECT_TRUE(fence_.Recover(AtMs(1000), milliseconds(300)));
  EXPECT_EQ(fence_.NextWake(), AtMs(1300));
  EXPECT_FALSE(fence_.FenceTimedOut(AtMs(1299)));
  EXPECT_TRUE(fence_.FenceTimedOut(AtMs(1300)));
}

TEST_F(FenceTest, AnOutageIsCountedFromTheLastSignOfLife) {
  Run();
  fence_.NoteFault(Broken(), AtMs(1000), AtMs(2000));
  fence_.Recover(AtMs(2000), kStepTimeout);
  fence_.NoteFault(Broken(), AtMs(9000), AtMs(9000));
  EXPECT_FALSE(fence_.OutageTooLong(AtMs(11799))) << "later faults do not lengthen it";
  EXPECT_TRUE(fence_.OutageTooLong(AtMs(11800)));
  fence_.GoDown();
  EXPECT_EQ(fence_.state(), PipelineState::kDown);
  EXPECT_FALSE(fence_.OutageTooLong(AtMs(20000))) << "once";
}

TEST_F(FenceTest, FaultsThatGoOnAreToldOnce) {
  Run();
  for (int i = 0; i < kMaxFaultsWithoutProgress; ++i) {
    fence_.NoteFault(Broken(), AtMs(i), AtMs(i));
    EXPECT_FALSE(fence_.FaultsGoOn());
    fence_.Recover(AtMs(i), kStepTimeout);
  }
  fence_.NoteFault(Broken(), AtMs(9), AtMs(9));
  EXPECT_TRUE(fence_.FaultsGoOn());
  fence_.GoDown();
  EXPECT_FALSE(fence_.FaultsGoOn());
}

TEST_F(FenceTest, LostStagesAreWaitedForLikeAnyOutage) {
  Run();
  fence_.Suspend();
  EXPECT_EQ(fence_.NextWake(), std::nullopt) << "a load takes as long as it takes";
  fence_.LoseStages(Broken(), AtMs(0), milliseconds(800), AtMs(0));
  EXPECT_EQ(fence_.NextWake(), AtMs(10800));
  EXPECT_FALSE(fence_.stages_lost().ok());
  fence_.Resume(20, AtMs(5000));
  EXPECT_EQ(fence_.epoch(), 20u);
  EXPECT_TRUE(fence_.fencing());
  EXPECT_TRUE(fence_.stages_lost().ok() && fence_.last_fault().ok());
  EXPECT_FALSE(fence_.OutageTooLong(AtMs(15799)));
  EXPECT_TRUE(fence_.OutageTooLong(AtMs(15800))) << "a new one, until its first step";
}

TEST_F(FenceTest, WhatIsDownStaysSoUntilItIsResumedOrCommits) {
  Run();
  fence_.NoteFault(Broken(), AtMs(0), AtMs(0));
  fence_.GoDown();
  fence_.Recover(AtMs(0), kStepTimeout);
  fence_.Suspend();
  EXPECT_TRUE(fence_.down());
  fence_.Resume(9, AtMs(1));
  EXPECT_FALSE(fence_.down());
  fence_.GoDown();
  EXPECT_TRUE(fence_.OnFenced(9));
  fence_.OnCommitted();
  EXPECT_FALSE(fence_.down());
  fence_.GoDown();
  fence_.Stop();
  EXPECT_EQ(fence_.state(), PipelineState::kStopped);
}

TEST_F(FenceTest, WhoIsRefusedIsToldWhatIsMissing) {
  Run();
  fence_.NoteFault(Broken(), AtMs(0), AtMs(0));
  EXPECT_EQ(DetailOf(fence_.DownStatus({})).message(), "the pipeline is down: a link broke");
  const v1::ErrorDetail missing = DetailOf(fence_.DownStatus({"a", "b"}));
  EXPECT_EQ(missing.message(),
            "the pipeline is down: nodes \"a\", \"b\" do not answer; a link broke");
  EXPECT_EQ(missing.node(), "b") << "whose acknowledgement the other one waits for";
}

TEST_F(FenceTest, ARankThatIsLostIsToBlameAndNotWhoSaysSo) {
  Run();
  fence_.NoteFault(
      Error(absl::StatusCode::kUnavailable, "RANKS_BROKEN", "rank 1 does not join").Node("c"),
      AtMs(0), AtMs(0));
  const v1::ErrorDetail down = DetailOf(fence_.DownStatus({"a"}));
  EXPECT_EQ(down.message(), "the pipeline is down: rank 1 does not join");
  EXPECT_EQ(down.node(), "c");
}

}  // namespace
}  // namespace strata
