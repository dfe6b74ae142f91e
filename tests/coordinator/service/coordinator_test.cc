#include "coordinator/service/process/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/service/models/placement.h"
#include "tests/coordinator/service/coordinator_testing.h"

namespace strata {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CoordinatorTest;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::TestWorker;

using Kind = v1::CoordinatorMessage;

// ---- Nodes.

TEST_F(CoordinatorTest, ADrainedNodeTakesNoNewModelAndStaysDrainedOverRestarts) {
  Start();
  AddModel("m");
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  ASSERT_TRUE(coordinator_->loads()->Plan("m", {}).ok());
  const auto drained = coordinator_->nodes()->SetDraining("a", true);
  ASSERT_TRUE(drained.ok()) << drained.status();
  EXPECT_EQ(drained->state(), "draining");
  EXPECT_EQ(ReasonOf(coordinator_->loads()->Plan("m", {}).status()), "NO_NODES");

  Start();
  EXPECT_EQ(NodeState("a"), "lost");
  TestWorker again(coordinator_.get(), "a", 2);
  ASSERT_TRUE(again.Join().ok());
  EXPECT_EQ(NodeState("a"), "draining");
  EXPECT_EQ(ReasonOf(coordinator_->loads()->Plan("m", {}).status()), "NO_NODES");
  ASSERT_TRUE(coordinator_->nodes()->SetDraining("a", false).ok());
  EXPECT_TRUE(coordinator_->loads()->Plan("m", {}).ok());
}

TEST_F(CoordinatorTest, ADrainedNodeGoesOnServingWhatItHolds) {
  Start();
  AddModel("m");
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  LoadOn(&a, "m");
  ASSERT_TRUE(coordinator_->nodes()->SetDraining("a", true).ok());
  EXPECT_EQ(StateOf("m"), "ready");
  EXPECT_THAT(a.Take(Kind::kUnload), IsEmpty());
}

TEST_F(CoordinatorTest, AnUnreachablePeerIsMeasuredAgainAndHealsByItself) {
  CoordinatorOptions options;
  options.measure_again = seconds(7);
  Start(options);
  TestWorker a(coordinator_.get(), "a", 1);
  TestWorker b(coordinator_.get(), "b", 2);
  ASSERT_TRUE(a.Join().ok());
  ASSERT_TRUE(b.Join().ok());
  Tick();
  EXPECT_THAT(a.Take(Kind::kMeasurePeer), SizeIs(1));
  a.SayMeasured("b", 2, "PEER_UNREACHABLE");
  b.SayMeasured("a", 1, "");
  EXPECT_EQ(NodeState("b"), "unreachable");
  EXPECT_EQ(NodeState("a"), "ready");
  ASSERT_THAT(coordinator_->report()->Status()->problems(), SizeIs(1));

  const auto asked_after = [&](milliseconds time) {
    clock_.Advance(time);
    a.SayHeartbeat();
    b.SayHeartbeat();
    Tick();
    return a.Take(Kind::kMeasurePeer).size();
  };
  asked_after(seconds(8));  // Whenever the last time was, this one is due.
  EXPECT_EQ(asked_after(seconds(4)), 0u);
  EXPECT_EQ(asked_after(seconds(4)), 1u);
  a.SayMeasured("b", 2, "");
  EXPECT_EQ(NodeState("b"), "ready");
  EXPECT_THAT(coordinator_->report()->Status()->problems(), IsEmpty());
  EXPECT_EQ(asked_after(seconds(8)), 0u);
}

TEST_F(CoordinatorTest, ANodeIsRemovedOnlyWhenItIsGoneAndHoldsNothing) {
  Start();
  AddModel("m");
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  LoadOn(&a, "m");
  EXPECT_EQ(ReasonOf(coordinator_->nodes()->Remove("a", false)), "NODE_IN_USE");
  // Forced, it is still alive: nothing is unloaded for that.
  EXPECT_EQ(ReasonOf(coordinator_->nodes()->Remove("a", true)), "NODE_ALIVE");
  EXPECT_EQ(StateOf("m"), "ready");
  a.Leave();
  ASSERT_TRUE(Eventually([&] { return NodeState("a") == "lost"; }));
  const absl::Status refused = coordinator_->nodes()->Remove("a", false);
  EXPECT_EQ(ReasonOf(refused), "NODE_IN_USE");
  EXPECT_THAT(DetailOf(refused).hint(), HasSubstr("model unload m"));
  EXPECT_TRUE(coordinator_->nodes()->Remove("a", true).ok());
  EXPECT_EQ(StateOf("m"), "registered");
  EXPECT_THAT(*coordinator_->nodes()->List(), IsEmpty());
  EXPECT_THAT(*store_.ListNodes(), IsEmpty());
  EXPECT_THAT(*store_.ListDeployments(), IsEmpty());
  EXPECT_EQ(ReasonOf(coordinator_->nodes()->Remove("a", true)), "NODE_NOT_FOUND");
}

TEST_F(CoordinatorTest, NodesThatLeftAreForgottenInTimeUnlessAModelHasLayersOnThem) {
  CoordinatorOptions options;
  options.cluster.forget_after = seconds(100);
  Start(options);
  AddModel("m");
  TestWorker a(coordinator_.get(), "a", 1);
  TestWorker b(coordinator_.get(), "b", 2);
  ASSERT_TRUE(a.Join().ok());
  ASSERT_TRUE(b.Join().ok());
  LoadOn(&a, "m");
  a.Leave();
  b.Leave();
  ASSERT_TRUE(Eventually([&] { return NodeState("a") == "lost" && NodeState("b") == "lost"; }));
  ASSERT_TRUE(Eventually([&] { return store_.ListNodes()->size() == 2; }));
  store_.full = true;
  clock_.Advance(seconds(101));
  EXPECT_TRUE(Eventually([&] { return NodeState("b") == "NODE_NOT_FOUND"; }));
  EXPECT_EQ(NodeState("a"), "lost");
  store_.full = false;
  EXPECT_TRUE(Eventually([&] {
    clock_.Advance(seconds(1));
    return store_.ListNodes()->size() == 1;
  })) << "the store is told once it can be";
  EXPECT_THAT(*coordinator_->nodes()->RemoveGone(), IsEmpty());
  EXPECT_TRUE(coordinator_->loads()->Unload("m", true).ok());
  EXPECT_THAT(*coordinator_->nodes()->RemoveGone(), ::testing::ElementsAre("a"));
  EXPECT_THAT(*store_.ListNodes(), IsEmpty());
}

TEST_F(CoordinatorTest, AFailedLoadIsTriedAgainByItselfAndStatusSaysSoUntilItWorks) {
  CoordinatorOptions options;
  options.cluster.lease = std::chrono::hours(10);  // Time passes without heartbeats.
  Start(options);
  AddModel("m");
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  v1::LoadOptions load;
  load.set_context(256);
  ASSERT_TRUE(coordinator_->loads()->Load("m", load).ok());
  const auto fail = [&] {
    std::vector<v1::CoordinatorMessage> loads;
    EXPECT_TRUE(Eventually([&] {
      loads = a.Take(v1::CoordinatorMessage::kLoad);
      return !loads.empty();
    }));
    v1::WorkerMessage message;
    message.mutable_load_progress()->set_deployment(loads.back().load().deployment());
    message.mutable_load_progress()->set_epoch(loads.back().load().epoch());
    message.mutable_load_progress()->set_phase(v1::LoadProgress::PHASE_FAILED);
    *message.mutable_load_progress()->mutable_error() =
        Error(absl::StatusCode::kResourceExhausted, "DISK_FULL", "no space left").Detail();
    a.Say(message);
  };
  fail();
  EXPECT_EQ(StateOf("m"), "failed");
  EXPECT_THAT(std::string(coordinator_->loads()->Progress("m").status().ToString()),
              HasSubstr("no space left"));
  ASSERT_EQ(coordinator_->report()->Status()->problems_size(), 1);
  EXPECT_THAT(coordinator_->report()->Status()->problems(0).what(),
              HasSubstr("loaded again by itself in 5.0 s (1 try so far)"));
  EXPECT_EQ(coordinator_->report()->GetModel("m")->retry().failed(), 1u);
  clock_.Advance(seconds(5));
  fail();
  clock_.Advance(seconds(10));
  ASSERT_TRUE(Eventually([&] { return StateOf("m") == "loading"; }));
  EXPECT_THAT(coordinator_->report()->Status()->problems(0).what(),
              HasSubstr("is loading again after it failed (2 tries so far)"));
  ASSERT_EQ(coordinator_->report()->Status()->waits_size(), 1);
  EXPECT_EQ(coordinator_->report()->Status()->waits(0).node(), "a");
  a.ObeyLoads();
  ASSERT_TRUE(Eventually([&] { return StateOf("m") == "ready"; }));
  EXPECT_THAT(coordinator_->report()->Status()->problems(), IsEmpty());
  EXPECT_THAT(coordinator_->report()->Status()->waits(), IsEmpty());
}

TEST_F(CoordinatorTest, AStallOfTheProcessLosesNoNodeWhoseHeartbeatsAreOnTheirWay) {
  Start();
  TestWorker a(coordinator_.get(), "a", 1);
  TestWorker silent(coordinator_.get(), "silent", 2);
  ASSERT_TRUE(a.Join().ok());
  ASSERT_TRUE(silent.Join().ok());
  Tick();
  clock_.Advance(seconds(60));
  Tick();
  EXPECT_EQ(NodeState("a"), "ready");
  EXPECT_EQ(NodeState("silent"), "ready");
  for (int i = 0; i < 12; ++i) {
    a.SayHeartbeat();
    clock_.Advance(milliseconds(500));
    Tick();
  }
  EXPECT_EQ(NodeState("a"), "ready");
  EXPECT_EQ(NodeState("silent"), "lost");
}

// ---- Models.

TEST_F(CoordinatorTest, ALoadGoesOnThoughNobodyAsksForItsProgress) {
  Start();
  AddModel("m");
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  ASSERT_TRUE(coordinator_->loads()->Load("m", {}).ok());
  EXPECT_EQ(StateOf("m"), "loading");
  EXPECT_FALSE(coordinator_->Healthy());
  a.ObeyLoads();
  EXPECT_TRUE(Eventually([&] { return coordinator_->Healthy(); }));
  EXPECT_EQ(StateOf("m"), "ready");
  EXPECT_TRUE(coordinator_->loads()->Progress("m")->ready());
}

TEST_F(CoordinatorTest, AModelWaitsForItsNodesAndLoadsAgainWhenTheyJoin) {
  Start();
  AddModel("m");
  uint64_t epoch = 0;
  {
    TestWorker a(coordinator_.get(), "a", 1);
    ASSERT_TRUE(a.Join().ok());
    LoadOn(&a, "m");
    epoch = a.last_load().epoch();
    a.Leave();
    EXPECT_TRUE(Eventually([&] { return StateOf("m") == "waiting"; }));
    EXPECT_THAT(coordinator_->report()->GetModel("m")->problem(), HasSubstr("'a'"));
    EXPECT_EQ(coordinator_->loads()->Progress("m").status().code(), absl::StatusCode::kUnavailable);
  }
  {
    // Another node is no substitute.
    TestWorker other(coordinator_.get(), "other", 5);
    ASSERT_TRUE(other.Join().ok());
    EXPECT_EQ(StateOf("m"), "waiting");
    EXPECT_THAT(other.Take(Kind::kLoad), IsEmpty());
  }
  TestWorker back(coordinator_.get(), "a", 2);
  ASSERT_TRUE(back.Join().ok());
  EXPECT_EQ(StateOf("m"), "loading");
  back.ObeyLoads();
  EXPECT_GT(back.last_load().epoch(), epoch);
  EXPECT_TRUE(Eventually([&] { return StateOf("m") == "ready"; }));
}

TEST_F(CoordinatorTest, ARestartLoadsWhatWasLoadedOnceItsNodesAreBack) {
  Start();
  AddModel("m");
  uint64_t epoch = 0;
  {
    TestWorker a(coordinator_.get(), "a", 1);
    ASSERT_TRUE(a.Join().ok());
    LoadOn(&a, "m");
    epoch = a.last_load().epoch();
  }
  Start();
  EXPECT_EQ(StateOf("m"), "waiting");
  EXPECT_THAT(coordinator_->report()->GetModel("m")->problem(), HasSubstr("waits for 'a'"));
  TestWorker a(coordinator_.get(), "a", 2);
  ASSERT_TRUE(a.Join().ok());
  a.ObeyLoads();
  EXPECT_GT(a.last_load().epoch(), epoch);
  EXPECT_TRUE(Eventually([&] { return StateOf("m") == "ready"; }));
}

TEST_F(CoordinatorTest, TokensAreDraftedUnlessALoadSaysOtherwise) {
  Start();
  AddModel("m");
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  LoadOn(&a, "m");
  const auto drafts = [&] { return coordinator_->report()->GetModel("m")->options().speculate(); };
  EXPECT_EQ(drafts(), "auto");
  const uint64_t first = a.last_load().deployment();
  const auto load = [&](const std::string& speculate) {
    v1::LoadOptions options;
    options.add_nodes("a");
    options.set_context(256);
    options.set_speculate(speculate);
    ASSERT_TRUE(coordinator_->loads()->Load("m", options).ok());
    a.ObeyLoads();
    ASSERT_TRUE(Eventually([&] { return StateOf("m") == "ready"; })) << StateOf("m");
  };
  load("auto");
  EXPECT_EQ(a.last_load().deployment(), first);  // As it is.
  load("off");
  EXPECT_EQ(drafts(), "off");
  const uint64_t without = a.last_load().deployment();
  EXPECT_NE(without, first);
  // Whoever says nothing takes it as it is.
  load("");
  EXPECT_EQ(drafts(), "off");
  EXPECT_EQ(a.last_load().deployment(), without);
}

TEST_F(CoordinatorTest, TokensAreDraftedByDefaultWhereAllLayersAreOnCpus) {
  for (const auto& [devices, expected] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{{{"cpu"}, "auto"},
                                                                     {{"cpu", "cpu"}, "auto"},
                                                                     {{"cuda"}, "off"},
                                                                     {{"cpu", "mlx"}, "off"}}) {
    v1::Plan plan;
    v1::PlanPipeline* pipeline = plan.add_pipelines();
    for (const std::string& device : devices) {
      pipeline->add_stages()->add_ranks()->set_device(device);
    }
    EXPECT_EQ(DefaultSpeculate(plan), expected);
  }
}

TEST_F(CoordinatorTest, ALoadedModelIsRemovedOnlyByForce) {
  Start();
  AddModel("m");
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  LoadOn(&a, "m");
  EXPECT_EQ(ReasonOf(coordinator_->loads()->Remove("m", false)), "MODEL_IN_USE");
  EXPECT_EQ(StateOf("m"), "ready");
  EXPECT_TRUE(coordinator_->loads()->Remove("m", true).ok());
  EXPECT_THAT(a.Take(Kind::kUnload), SizeIs(1));
  EXPECT_EQ(ReasonOf(coordinator_->loads()->Load("m", {}).status()), "MODEL_NOT_FOUND");
  EXPECT_THAT(*store_.ListDeployments(), IsEmpty());
}

// Whichever is decided first, the other fails. The loop is held while both begin, so that the load
// is planned with a model that is registered, and placed when it may not be any more.
TEST_F(CoordinatorTest, OfALoadAndARemovalOfOneModelExactlyOneSucceeds) {
  Start();
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  for (int round = 0; round < 5; ++round) {
    AddModel("m");
    std::promise<void> go_on;
    coordinator_->PostToLoop([gate = go_on.get_future().share()] { gate.wait(); });
    absl::Status loaded;
    absl::Status removed;
    std::thread load([&] { loaded = coordinator_->loads()->Load("m", {}).status(); });
    std::this_thread::sleep_for(milliseconds(10));
    std::thread remove([&] { removed = coordinator_->loads()->Remove("m", false); });
    std::this_thread::sleep_for(milliseconds(10));
    go_on.set_value();
    load.join();
    remove.join();
    EXPECT_NE(loaded.ok(), removed.ok()) << loaded << " " << removed;
    EXPECT_EQ(StateOf("m"), loaded.ok() ? "loading" : "MODEL_NOT_FOUND");
    EXPECT_THAT(*store_.ListDeployments(), SizeIs(loaded.ok() ? 1 : 0));
    if (loaded.ok()) {
      ASSERT_TRUE(coordinator_->loads()->Remove("m", true).ok());
    }
  }
}

TEST_F(CoordinatorTest, RotaryTablesAreOfferedAsLongAsADeploymentUsesThem) {
  Start();
  AddModel("m");
  AddModel("n");
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  LoadOn(&a, "m");
  const std::string sha256 = a.last_load().rotary_sha256();
  LoadOn(&a, "n");
  EXPECT_EQ(a.last_load().rotary_sha256(), sha256);
  ASSERT_TRUE(coordinator_->loads()->Unload("m", false).ok());
  EXPECT_TRUE(blobs_.Find(sha256).ok());
  ASSERT_TRUE(coordinator_->loads()->Unload("n", false).ok());
  EXPECT_EQ(ReasonOf(blobs_.Find(sha256).status()), "NO_BLOB");
}

// ---- Requests.

class RecordingSink : public SessionSink {
 public:
  void OnStarted(const StartedInfo&) override {}
  void OnRows(const RowsInfo&) override {}
  Verdict OnToken(const TokenInfo&) override { return Verdict::kContinue; }
  void OnDone(const FinishInfo& info) override { end = info.reason; }
  void OnFailed(const absl::Status& status) override { end = ReasonOf(status); }
  std::string end;
};

TEST_F(CoordinatorTest, ARequestIdIsInFlightOnceOverAllModels) {
  Start();
  AddModel("m");
  AddModel("n");
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  LoadOn(&a, "m");
  LoadOn(&a, "n");
  // As the inference service does.
  const auto submit = [&](const std::string& model, bool replace,
                          const std::shared_ptr<RecordingSink>& sink) {
    std::promise<absl::Status> done;
    EXPECT_TRUE(coordinator_->requests()
                    ->WithEngine(model,
                                 [&](const Serving& serving) {
                                   absl::Status status = serving.problem;
                                   SessionRequest request;
                                   request.key = request.request_id = "id";
                                   if (status.ok()) {
                                     status = coordinator_->requests()->ClaimId(request, replace);
                                   }
                                   request.prompt = {1, 2, 3};
                                   request.params.mutable_sampling()->set_temperature(0);
                                   if (status.ok()) {
                                     status = serving.engine->Submit(request, sink, clock_.Now());
                                   }
                                   done.set_value(status);
                                 })
                    .ok());
    return done.get_future().get();
  };
  const auto ends = [&](const std::shared_ptr<RecordingSink>& sink) {
    std::string end;
    OnLoop([&] { end = sink->end; });
    return end;
  };
  const auto first = std::make_shared<RecordingSink>();
  const auto second = std::make_shared<RecordingSink>();
  const auto third = std::make_shared<RecordingSink>();
  ASSERT_TRUE(submit("m", false, first).ok());
  for (const char* model : {"m", "n"}) {
    const absl::Status refused = submit(model, false, second);
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(ReasonOf(refused), "REQUEST_IN_FLIGHT");
  }
  EXPECT_EQ(ends(first), "");
  EXPECT_TRUE(submit("n", true, second).ok());
  EXPECT_EQ(ends(first), "REPLACED");
  EXPECT_THAT(*coordinator_->requests()->List(), SizeIs(1));
  EXPECT_TRUE(coordinator_->requests()->CancelById("id").ok());
  EXPECT_EQ(ends(second), "cancelled");
  EXPECT_EQ(ReasonOf(coordinator_->requests()->CancelById("id")), "SESSION_NOT_FOUND");
  EXPECT_TRUE(submit("m", false, third).ok());
}

TEST_F(CoordinatorTest, CallsBeyondTheLimitAreRefusedWhileMembersAreHeard) {
  CoordinatorOptions options;
  options.max_waiting_calls = 2;
  Start(options);
  TestWorker a(coordinator_.get(), "a", 1);
  ASSERT_TRUE(a.Join().ok());
  std::promise<void> go_on;
  coordinator_->PostToLoop([gate = go_on.get_future().share()] { gate.wait(); });
  int answered = 0;
  const auto ask = [&] {
    return coordinator_->requests()->WithEngine("m", [&](const Serving&) { ++answered; });
  };
  EXPECT_TRUE(ask().ok());
  EXPECT_TRUE(ask().ok());
  EXPECT_EQ(ReasonOf(ask()), "OVERLOADED");
  EXPECT_EQ(coordinator_->nodes()->List().status().code(), absl::StatusCode::kResourceExhausted);
  // Waits for its turn, and gets it.
  std::thread heartbeat([&] { a.SayHeartbeat(); });
  go_on.set_value();
  heartbeat.join();
  EXPECT_THAT(a.Take(Kind::kLeaseRenewed), SizeIs(1));
  EXPECT_THAT(*coordinator_->nodes()->List(), SizeIs(1));
  EXPECT_EQ(answered, 2);
}

TEST_F(CoordinatorTest, EveryCallSaysThatTheCoordinatorIsStopping) {
  Start();
  AddModel("m");
  coordinator_->Shutdown(nanoseconds(0));
  const auto says = [](const absl::Status& status) {
    return status.code() == absl::StatusCode::kUnavailable ? ReasonOf(status) : "not UNAVAILABLE";
  };
  EXPECT_EQ(says(coordinator_->report()->Status().status()), "STOPPING");
  EXPECT_EQ(says(coordinator_->nodes()->List().status()), "STOPPING");
  EXPECT_EQ(says(coordinator_->report()->ListModels().status()), "STOPPING");
  EXPECT_EQ(says(coordinator_->requests()->List().status()), "STOPPING");
  EXPECT_EQ(says(coordinator_->report()->GetModel("m").status()), "STOPPING");
  EXPECT_EQ(says(coordinator_->loads()->Load("m", {}).status()), "STOPPING");
  EXPECT_EQ(says(coordinator_->loads()->Remove("m", true)), "STOPPING");
  v1::MoveModelRequest move;
  move.set_model("m");
  EXPECT_EQ(says(coordinator_->moves()->Plan(move).status()), "STOPPING");
  EXPECT_EQ(says(coordinator_->moves()->Move(move).status()), "STOPPING");
  EXPECT_EQ(says(coordinator_->moves()->Progress("m").status()), "STOPPING");
  EXPECT_EQ(says(coordinator_->requests()->CancelById("x")), "STOPPING");
  EXPECT_EQ(says(coordinator_->requests()->WithEngine("m", [](const Serving&) {})), "STOPPING");
}

}  // namespace
}  // namespace strata
