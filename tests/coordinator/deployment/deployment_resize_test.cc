#include <gtest/gtest.h>

#include <cstddef>

#include "common/status.h"
#include "coordinator/deployment/deployment.h"
#include "tests/coordinator/deployment/deployment_fixture.h"

namespace strata {
namespace {

TEST_F(DeploymentTest, AResizeThatAWorkerNeverAnswersIsUndoneAndAnUndoingThatItDoesNotFails) {
  MakeReady();
  ASSERT_TRUE(deployment_.Resize(MakePlan(64), MakeOptions(1024)).ok());
  Progress("a", v1::LoadProgress::PHASE_READY, deployment_.plan().epoch());
  host_.now += kLoadTimeout;
  deployment_.Tick(host_.now);
  EXPECT_EQ(deployment_.state(), DeploymentState::kResizing);
  EXPECT_EQ(ReasonOf(deployment_.resize_problem()), "LOAD_TIMEOUT");
  EXPECT_EQ(deployment_.load_options().kv_tokens(), 512u);
  host_.now += kLoadTimeout;
  deployment_.Tick(host_.now);
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
}

TEST_F(DeploymentTest, AResizeMayBeGivenTheOptionsThatStand) {
  MakeReady();
  const uint32_t tokens = deployment_.load_options().max_batch_tokens();
  ASSERT_GT(tokens, 0u);
  ASSERT_TRUE(deployment_.Resize(MakePlan(64), deployment_.load_options()).ok());
  EXPECT_EQ(deployment_.load_options().max_batch_tokens(), tokens);
  EXPECT_EQ(deployment_.load_options().kv_tokens(), 512u);
}

TEST_F(DeploymentTest, AResizeKeepsItsSessionsWaiting) {
  MakeReady();
  const auto running = Submit("r1", 10, 10);
  EXPECT_TRUE(running->started);
  const size_t frames = host_.frames.size();
  ASSERT_TRUE(deployment_.Resize(MakePlan(64), MakeOptions(1024)).ok());
  EXPECT_EQ(deployment_.state(), DeploymentState::kResizing);
  EXPECT_TRUE(deployment_.serves());
  EXPECT_EQ(host_.links_open, 0);
  const auto queued = Submit("r2", 700, 10);
  EXPECT_FALSE(queued->started);
  const v1::Load load = host_.TakeLoads("a")[0];
  EXPECT_EQ(load.kv_pages(0), 64u);
  EXPECT_EQ(load.next_incarnation(), 12u);
  EXPECT_EQ(load.epoch(), deployment_.plan().epoch());
  EXPECT_EQ(deployment_.Record().options.kv_tokens(), 1024u);
  BothReady();
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  EXPECT_TRUE(deployment_.resize_problem().ok());
  BothAckAndLink();
  Commit(OpenResults(), 64);
  EXPECT_TRUE(queued->started);
  EXPECT_GT(host_.frames.size(), frames + 1);
  EXPECT_TRUE(running->failed.ok());
}

TEST_F(DeploymentTest, AResizeBelowWhatWasPromisedIsRefusedAndChangesNothing) {
  MakeReady();
  const auto running = Submit("r1", 200, 100);
  const absl::Status status = deployment_.Resize(MakePlan(8), MakeOptions(128));
  EXPECT_EQ(ReasonOf(status), "KV_IN_USE");
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  EXPECT_TRUE(host_.TakeLoads("a").empty());
  EXPECT_EQ(deployment_.Record().options.kv_tokens(), 512u);
}

TEST_F(DeploymentTest, AResizeThatFailsOnANodeIsUndone) {
  MakeReady();
  const auto running = Submit("r1", 10, 10);
  ASSERT_TRUE(deployment_.Resize(MakePlan(64), MakeOptions(1024)).ok());
  const uint64_t epoch = deployment_.plan().epoch();
  Progress("a", v1::LoadProgress::PHASE_READY, epoch);
  Progress("b", v1::LoadProgress::PHASE_FAILED, epoch);
  EXPECT_EQ(deployment_.state(), DeploymentState::kResizing);
  EXPECT_EQ(ReasonOf(deployment_.resize_problem()), "MEMORY_LIMIT");
  EXPECT_GT(deployment_.plan().epoch(), epoch);
  EXPECT_EQ(host_.TakeLoads("b").back().kv_pages(0), 32u);
  EXPECT_EQ(deployment_.Record().options.kv_tokens(), 512u);
  EXPECT_EQ(host_.records_asked, 1);
  BothReady();
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  BothAckAndLink();
  Commit(OpenResults(), 32);
  EXPECT_TRUE(running->failed.ok());
  EXPECT_EQ(deployment_.load_options().kv_tokens(), 512u);
  EXPECT_EQ(ReasonOf(deployment_.resize_problem()), "MEMORY_LIMIT") << "for who waits";
}

TEST_F(DeploymentTest, ANodeLostWhileResizingLeavesTheKnownSize) {
  MakeReady();
  const auto running = Submit("r1", 10, 10);
  ASSERT_TRUE(deployment_.Resize(MakePlan(64), MakeOptions(1024)).ok());
  deployment_.OnNodeLost("a");
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  EXPECT_EQ(ReasonOf(running->failed), "NODE_LOST");
  EXPECT_EQ(deployment_.Record().options.kv_tokens(), 512u);
  EXPECT_EQ(host_.records_asked, 1);
  host_.TakeLoads("b");
  deployment_.Load({{"a", 21}, {"b", 12}});
  EXPECT_EQ(host_.TakeLoads("b")[0].kv_pages(0), 32u);
}

}  // namespace
}  // namespace strata
