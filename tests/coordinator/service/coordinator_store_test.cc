// The coordinator over a store that is full, or whose disk hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "coordinator/service/process/coordinator.h"
#include "tests/coordinator/service/coordinator_testing.h"

namespace strata {
namespace {

using std::chrono::seconds;
using testing::CoordinatorTest;
using testing::Eventually;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::TestWorker;

using Kind = v1::CoordinatorMessage;

class CoordinatorStoreTest : public CoordinatorTest {
 protected:
  // Model m on node a, and both in the store.
  std::unique_ptr<TestWorker> ServeM() {
    Start();
    AddModel("m");
    auto a = std::make_unique<TestWorker>(coordinator_.get(), "a", 1);
    EXPECT_TRUE(a->Join().ok());
    LoadOn(a.get(), "m");
    EXPECT_TRUE(Eventually([&] { return store_.ListNodes()->size() == 1; }));
    return a;
  }
  // While the store hangs.
  bool AChangeWaits() {
    return Eventually([&] { return store_.waiting > 0; });
  }
};

TEST_F(CoordinatorStoreTest, WhatTheStoreCannotKeepIsReportedAndChangesNothing) {
  const auto a = ServeM();
  AddModel("n");
  a->Take();
  store_.full = true;
  EXPECT_EQ(ReasonOf(coordinator_->nodes()->SetDraining("a", true).status()), "STORE_FULL");
  EXPECT_EQ(NodeState("a"), "serving");
  EXPECT_EQ(ReasonOf(coordinator_->loads()->Load("n", {}).status()), "STORE_FULL");
  EXPECT_EQ(StateOf("n"), "registered");
  EXPECT_EQ(ReasonOf(coordinator_->loads()->Unload("m", true)), "STORE_FULL");
  EXPECT_EQ(ReasonOf(coordinator_->loads()->Remove("m", true)), "STORE_FULL");
  EXPECT_EQ(ReasonOf(coordinator_->loads()->Remove("n", true)), "STORE_FULL");
  EXPECT_EQ(StateOf("m"), "ready");
  EXPECT_EQ(StateOf("n"), "registered");
  for (const v1::CoordinatorMessage& message : a->Take()) {
    EXPECT_FALSE(message.has_load());
    EXPECT_NE(message.unload().deployment(), a->last_load().deployment());
  }
  store_.full = false;
  EXPECT_TRUE(coordinator_->loads()->Unload("m", true).ok());
  EXPECT_THAT(a->Take(Kind::kUnload), SizeIs(1));
}

// Nothing here would end if the loop waited.
TEST_F(CoordinatorStoreTest, ADiskThatHangsHoldsUpNoNodeAndNoRequest) {
  const auto a = ServeM();
  AddModel("n");
  TestWorker b(coordinator_.get(), "b", 2);
  store_.hangs = true;
  ASSERT_TRUE(b.Join().ok());
  std::thread load([&] { EXPECT_TRUE(coordinator_->loads()->Load("n", {}).ok()); });
  EXPECT_TRUE(AChangeWaits());
  a->Take();
  a->SayHeartbeat();
  EXPECT_THAT(a->Take(Kind::kLeaseRenewed), SizeIs(1));
  EXPECT_EQ(NodeState("b"), "ready");
  EXPECT_EQ(StateOf("m"), "ready");
  EXPECT_EQ(StateOf("n"), "registered");
  v1::WorkerMessage fault;
  fault.mutable_link_fault()->set_deployment(a->last_load().deployment());
  fault.mutable_link_fault()->set_epoch(coordinator_->report()->GetModel("m")->plan().epoch());
  *fault.mutable_link_fault()->mutable_error() =
      Error(absl::StatusCode::kUnavailable, "LINK_BROKEN", "it broke").Detail();
  a->Say(fault);
  EXPECT_THAT(a->Take(Kind::kFence), SizeIs(1));
  EXPECT_THAT(*store_.ListNodes(), SizeIs(1));
  store_.hangs = false;
  load.join();
  EXPECT_EQ(StateOf("n"), "loading");
  EXPECT_TRUE(Eventually([&] { return store_.ListNodes()->size() == 2; }));
}

TEST_F(CoordinatorStoreTest,
       AModelThatIsBeingUnloadedTakesNoRequestsUntilTheStoreRefusesToForgetIt) {
  const auto a = ServeM();
  const auto reason = [&] {
    auto asked = std::make_shared<std::promise<std::string>>();
    EXPECT_TRUE(coordinator_->requests()
                    ->WithEngine("m",
                                 [asked](const Serving& serving) {
                                   asked->set_value(ReasonOf(serving.problem));
                                 })
                    .ok());
    return asked->get_future().get();
  };
  store_.full = true;
  store_.hangs = true;
  absl::Status unloaded;
  std::thread unload([&] { unloaded = coordinator_->loads()->Unload("m", false); });
  EXPECT_TRUE(AChangeWaits());
  EXPECT_EQ(reason(), "MODEL_LOADING");
  store_.hangs = false;
  unload.join();
  EXPECT_EQ(ReasonOf(unloaded), "STORE_FULL");
  EXPECT_EQ(reason(), "");
  EXPECT_EQ(StateOf("m"), "ready");
}

TEST_F(CoordinatorStoreTest, AChangeThatWaitsForTheDiskWhileTheCoordinatorStopsEndsWithIt) {
  const auto a = ServeM();
  TestWorker b(coordinator_.get(), "b", 2);
  store_.hangs = true;
  absl::Status unloaded;
  std::thread unload([&] { unloaded = coordinator_->loads()->Unload("m", true); });
  EXPECT_TRUE(AChangeWaits());
  ASSERT_TRUE(b.Join().ok());  // Its record waits for the unload's, and the end for the record.
  std::thread stop([&] { coordinator_->Shutdown(seconds(0)); });
  EXPECT_TRUE(Eventually([&] { return StateOf("m") == "registered"; }));
  store_.hangs = false;
  unload.join();
  stop.join();
  EXPECT_EQ(ReasonOf(unloaded), "STOPPING");
  EXPECT_THAT(*store_.ListNodes(), SizeIs(2));
}

TEST_F(CoordinatorStoreTest, ANodeThatJoinsAgainWhileItIsBeingRemovedStays) {
  Start();
  TestWorker a(coordinator_.get(), "a", 1);
  TestWorker again(coordinator_.get(), "a", 2);
  ASSERT_TRUE(a.Join().ok());
  ASSERT_TRUE(Eventually([&] { return store_.ListNodes()->size() == 1; }));
  a.Leave();
  ASSERT_TRUE(Eventually([&] { return NodeState("a") == "lost"; }));
  store_.hangs = true;
  absl::Status removed;
  std::thread remove([&] { removed = coordinator_->nodes()->Remove("a", false); });
  EXPECT_TRUE(AChangeWaits());
  ASSERT_TRUE(again.Join().ok());
  store_.hangs = false;
  remove.join();
  EXPECT_EQ(ReasonOf(removed), "NODE_ALIVE");
  EXPECT_EQ(NodeState("a"), "ready");
  EXPECT_TRUE(Eventually([&] { return store_.ListNodes()->size() == 1; }));
}

TEST_F(CoordinatorStoreTest, AResizeThatTheStoreRefusesChangesNothing) {
  const auto a = ServeM();
  a->Take();
  const uint64_t tokens = coordinator_->report()->GetModel("m")->options().kv_tokens();
  store_.full = true;
  const auto resized = coordinator_->loads()->Resize("m", 2 * tokens, [] { return false; });
  EXPECT_EQ(ReasonOf(resized.status()), "STORE_FULL");
  EXPECT_EQ(StateOf("m"), "ready");
  EXPECT_EQ(coordinator_->report()->GetModel("m")->options().kv_tokens(), tokens);
  EXPECT_THAT(a->Take(Kind::kLoad), IsEmpty());
}

TEST_F(CoordinatorStoreTest, AModelThatIsBeingUnloadedIsNotResized) {
  const auto a = ServeM();
  store_.hangs = true;
  std::thread unload([&] { EXPECT_TRUE(coordinator_->loads()->Unload("m", false).ok()); });
  EXPECT_TRUE(AChangeWaits());
  const auto resized = coordinator_->loads()->Resize("m", 4096, [] { return false; });
  EXPECT_EQ(ReasonOf(resized.status()), "MODEL_LOADING");
  store_.hangs = false;
  unload.join();
  EXPECT_EQ(StateOf("m"), "registered");
}

TEST_F(CoordinatorStoreTest, EpochsAfterARestartAreAboveAllThatMayHaveBeenUsed) {
  const auto a = ServeM();
  const uint64_t recorded = store_.ListDeployments()->front().plan.epoch();
  EXPECT_GT(recorded, coordinator_->report()->GetModel("m")->plan().epoch());
  Start();
  // Its term says so: the store need not be told first.
  TestWorker again(coordinator_.get(), "a", 2);
  ASSERT_TRUE(again.Join().ok());
  again.ObeyLoads();
  EXPECT_GT(again.last_load().epoch(), recorded);
}

TEST_F(CoordinatorStoreTest, PlacingAnewReplacesTheRecordOrLeavesEverything) {
  const auto a = ServeM();
  v1::LoadOptions other;
  other.set_context(512);
  const uint64_t id = store_.ListDeployments()->front().id;
  store_.full = true;
  EXPECT_EQ(ReasonOf(coordinator_->loads()->Load("m", other).status()), "STORE_FULL");
  EXPECT_EQ(StateOf("m"), "ready");
  EXPECT_EQ(store_.ListDeployments()->front().id, id);
  store_.full = false;
  ASSERT_TRUE(coordinator_->loads()->Load("m", other).ok());
  ASSERT_THAT(*store_.ListDeployments(), SizeIs(1));
  EXPECT_GT(store_.ListDeployments()->front().id, id);
  a->ObeyLoads();
  EXPECT_EQ(a->last_load().context(), 512u);
  EXPECT_TRUE(Eventually([&] { return StateOf("m") == "ready"; }));
}

}  // namespace
}  // namespace strata
