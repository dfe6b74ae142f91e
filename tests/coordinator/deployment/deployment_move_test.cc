// A model whose layers go to other nodes while its requests wait.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/plan.h"
#include "common/status.h"
#include "coordinator/deployment/deployment.h"
#include "tests/coordinator/deployment/deployment_fixture.h"

namespace strata {
namespace {

using std::chrono::seconds;

class DeploymentMove : public DeploymentTest {
 protected:
  DeploymentMove() {
    v1::LoadOptions options = MakeOptions(512);
    options.set_recovery(v1::RECOVERY_MOVE);
    moves_ = std::make_unique<Deployment>(kId, std::make_shared<TestModel>(), MakePlan(32), options,
                                          RotaryBlob(), DeploymentOptions(), &host_);
    moves_->OnRecorded(moves_->Record().plan.epoch(), absl::OkStatus());
    moves_->Load({{"a", 11}, {"b", 12}});
    Ready({"a", "b"});
    AckAndLink({"a", "b"});
    Commit("b", 12, 2, 32);
    EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  }

  // Stages of equal numbers of layers on these nodes, in their lives.
  static v1::Plan PlanOn(const std::vector<std::pair<std::string, uint64_t>>& nodes,
                         uint64_t pages = 32) {
    v1::Plan plan;
    plan.mutable_numerics_class()->set_name("test-1");
    v1::PlanPipeline* pipeline = plan.add_pipelines();
    uint32_t layer = 0;
    for (const auto& [node, incarnation] : nodes) {
      v1::PlanStage* stage = pipeline->add_stages();
      stage->add_ranks()->set_node(node);
      stage->mutable_ranks(0)->set_incarnation(incarnation);
      stage->set_first_layer(layer);
      layer += static_cast<uint32_t>(4 / nodes.size());
      stage->set_last_layer(layer - 1);
      stage->add_kv_pages(pages);
    }
    return plan;
  }

  void Ready(const std::vector<std::string>& nodes) {
    v1::LoadProgress progress;
    progress.set_deployment(kId);
    progress.set_epoch((moves_->prepares() ? *moves_->next() : moves_->plan()).epoch());
    progress.set_phase(v1::LoadProgress::PHASE_READY);
    for (const std::string& node : nodes) moves_->OnLoadProgress(node, progress);
  }
  void AckAndLink(const std::vector<std::string>& nodes) {
    v1::FenceAck ack;
    ack.set_deployment(kId);
    ack.set_epoch(moves_->plan().epoch());
    for (const std::string& node : nodes) moves_->pipeline()->OnFenceAck(node, ack);
    host_.OpenLast();
  }
  // The links that were opened ahead are open, and the steps in flight do not come back.
  void OpenLastAheadAndDrain() {
    host_.OpenLast();
    EXPECT_TRUE(moves_->prepares()) << "a step is in flight";
    host_.now += seconds(1);
    EXPECT_LE(moves_->NextWake(), host_.now);
    moves_->Tick(host_.now);
  }
  // The new stages are loaded, and told to open links ahead: for this epoch.
  uint64_t ReadyAndAhead(const std::vector<std::string>& nodes) {
    Ready(nodes);
    for (const auto& [node, message] : host_.messages) {
      if (node == nodes[0] && message.fence().ahead()) {
        return message.fence().epoch();
      }
    }
    ADD_FAILURE() << "nothing is opened ahead";
    return 0;
  }
  void AckAhead(const std::vector<std::string>& nodes, uint64_t epoch, bool carried = false) {
    v1::FenceAck ack;
    ack.set_deployment(kId);
    ack.set_epoch(epoch);
    ack.set_ahead(true);
    ack.set_carried(carried);
    for (const std::string& node : nodes) moves_->pipeline()->OnFenceAck(node, ack);
  }
  static v1::LinkFault FaultOf(uint64_t epoch) {
    v1::LinkFault fault;
    fault.set_deployment(kId);
    fault.set_epoch(epoch);
    *fault.mutable_error() =
        Error(absl::StatusCode::kUnavailable, "LINK_BROKEN", "it broke").Detail();
    return fault;
  }
  std::optional<uint64_t> OpenResults(const std::string& last, uint64_t incarnation,
                                      uint32_t stages, uint64_t epoch) {
    v1::LinkOpen open;
    open.set_from_node(last);
    open.set_from_incarnation(incarnation);
    open.set_epoch(epoch);
    open.set_to_stage(stages);
    return moves_->pipeline()->AcceptResults(open);
  }
  // The result of the frame sent last, as these many stages would give it.
  void Commit(const std::string& last, uint64_t incarnation, uint32_t stages, uint64_t pages) {
    const auto link = OpenResults(last, incarnation, stages, moves_->plan().epoch());
    ASSERT_TRUE(link.has_value());
    CommitOn(*link, stages, pages);
  }
  void CommitOn(uint64_t link, uint32_t stages, uint64_t pages) {
    const v1::StepFrame& frame = host_.frames.back().header;
    ResultMessage result;
    result.header.set_deployment(kId);
    result.header.set_epoch(frame.epoch());
    result.header.set_step(frame.step());
    for (uint32_t s = 0; s < stages; ++s) {
      v1::StageKv* stage = result.header.add_stages();
      stage->set_stage(s);
      stage->add_total_pages(pages);
      stage->add_free_pages(pages);
    }
    moves_->pipeline()->OnResult(link, std::move(result));
  }
  absl::Status TrySubmit(const std::string& id, const std::shared_ptr<Sink>& sink) {
    SessionRequest request;
    request.key = request.request_id = id;
    request.prompt.assign(10, 1);
    request.max_tokens = 10;
    return moves_->engine()->Submit(std::move(request), sink, host_.Now());
  }
  std::shared_ptr<Sink> Ask(const std::string& id) {
    auto sink = std::make_shared<Sink>();
    const absl::Status status = TrySubmit(id, sink);
    EXPECT_TRUE(status.ok()) << status;
    return sink;
  }

  absl::Status Move(const v1::Plan& plan) {
    return moves_->Move(plan, Deployment::MoveWay::kPause);
  }

  absl::Status Prepare(const v1::Plan& plan) {
    return moves_->Move(plan, Deployment::MoveWay::kPrepare);
  }
  v1::LoadProgress FailedOfNext() const {
    v1::LoadProgress failed;
    failed.set_deployment(kId);
    failed.set_epoch(moves_->next()->epoch());
    failed.set_phase(v1::LoadProgress::PHASE_FAILED);
    *failed.mutable_error() =
        Error(absl::StatusCode::kResourceExhausted, "MEMORY_LIMIT", "no room").Detail();
    return failed;
  }

  std::unique_ptr<Deployment> moves_;
};

TEST_F(DeploymentMove, SessionsGoOnOnOtherNodesInAnotherNumberOfStages) {
  const auto sink = Ask("r1");
  EXPECT_FALSE(moves_->WantsPlacement(host_.now));
  moves_->OnNodeLost("b");
  EXPECT_EQ(moves_->state(), DeploymentState::kWaiting);
  ASSERT_TRUE(moves_->WantsPlacement(host_.now));
  moves_->BeginSearch();
  EXPECT_FALSE(moves_->WantsPlacement(host_.now + seconds(60))) << "somebody looks";
  const int records = host_.records_asked;
  const uint64_t epoch = moves_->plan().epoch();
  ASSERT_TRUE(Move(PlanOn({{"a", 11}})).ok());
  EXPECT_EQ(moves_->state(), DeploymentState::kLoading);
  EXPECT_GT(host_.records_asked, records) << "a restart finds it there";
  EXPECT_GT(moves_->plan().epoch(), epoch);
  const v1::Load load = host_.TakeLoads("a").back();
  EXPECT_EQ(load.stage_count(), 1u);
  EXPECT_EQ(load.last_layer(), 3u);
  Ready({"a"});
  AckAndLink({"a"});
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  ASSERT_TRUE(host_.frames.back().header.resync());
  Commit("a", 11, 1, 32);
  EXPECT_EQ(host_.frames.back().header.items(0).sequence().request_id(), "r1");
  EXPECT_EQ(host_.frames.back().header.items(0).position(), 0u) << "from its tokens";
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, RequestsThatComeMeanwhileQueueEvenWithoutOthers) {
  moves_->OnNodeLost("b");
  moves_->Tick(host_.now);
  EXPECT_TRUE(moves_->serves());
  const auto sink = Ask("r1");
  ASSERT_TRUE(Move(PlanOn({{"a", 11}, {"c", 7}})).ok());
  EXPECT_TRUE(moves_->serves());
  moves_->Tick(host_.now);
  Ready({"a", "c"});
  AckAndLink({"a", "c"});
  Commit("c", 7, 2, 32);
  EXPECT_EQ(host_.frames.back().header.items(0).sequence().request_id(), "r1");
}

TEST_F(DeploymentMove, WhereNoNodesAreFoundItLooksAgainAndTheRequestsFailInTheEnd) {
  const auto sink = Ask("r1");
  moves_->OnNodeLost("b");
  moves_->BeginSearch();
  moves_->SearchFailed(
      Error(absl::StatusCode::kResourceExhausted, "KV_TARGET", "3 GiB are missing"));
  EXPECT_EQ(ReasonOf(moves_->problem()), "KV_TARGET") << "status says what is missing";
  moves_->SetWaitingFor({"b"});
  EXPECT_EQ(ReasonOf(moves_->problem()), "KV_TARGET");
  EXPECT_FALSE(moves_->WantsPlacement(host_.now));
  EXPECT_TRUE(moves_->WantsPlacement(host_.now + DeploymentOptions().placement_again));
  host_.now += seconds(1);
  moves_->OnNodeJoined("c");
  EXPECT_TRUE(moves_->WantsPlacement(host_.now)) << "at once";
  host_.now += DeploymentOptions().placement_timeout;
  moves_->Tick(host_.now);
  EXPECT_TRUE(sink->failed.ok());
  host_.now += DeploymentOptions().step_timeout;
  moves_->Tick(host_.now);
  EXPECT_EQ(ReasonOf(sink->failed), "NODE_LOST");
  EXPECT_EQ(moves_->engine(), nullptr);
  EXPECT_TRUE(moves_->WantsPlacement(host_.now)) << "the model still looks for nodes";
  EXPECT_TRUE(Move(PlanOn({{"a", 11}})).ok());
  Ready({"a"});
  AckAndLink({"a"});
  EXPECT_TRUE(moves_->serves());
}

TEST_F(DeploymentMove, APlacementThatCouldNotHoldARequestIsRefused) {
  const auto sink = Ask("r1");
  moves_->OnNodeLost("b");
  EXPECT_EQ(ReasonOf(Move(PlanOn({{"a", 11}}, /*pages=*/1))), "KV_IN_USE");
  v1::Plan other = PlanOn({{"a", 11}});
  other.mutable_numerics_class()->set_name("test-2");
  EXPECT_EQ(ReasonOf(Move(other)), "NUMERICS_CHANGED");
  EXPECT_EQ(moves_->state(), DeploymentState::kWaiting);
  EXPECT_TRUE(sink->failed.ok());
  EXPECT_TRUE(Move(PlanOn({{"a", 11}})).ok());
  EXPECT_EQ(ReasonOf(Move(PlanOn({{"a", 11}}))), "NOT_READY") << "it moves already";
}

TEST_F(DeploymentMove, WhereAnotherClassWillDoStagesLoadInItAndRequestsAreTold) {
  const auto sink = Ask("r1");
  moves_->OnNodeLost("b");
  v1::Plan other = PlanOn({{"a", 11}, {"c", 7}});
  other.mutable_numerics_class()->set_name("test-1:0-1+test-2:2-3");
  ASSERT_TRUE(moves_->Move(other, Deployment::MoveWay::kPause, Deployment::MoveClass::kAny).ok());
  EXPECT_EQ(sink->numerics, "test-1:0-1+test-2:2-3");
  for (const char* node : {"a", "c"}) {
    const auto loads = host_.TakeLoads(node);
    ASSERT_FALSE(loads.empty()) << node;
    EXPECT_EQ(loads.back().numerics_class(), "test-1:0-1+test-2:2-3");
  }
  Ready({"a", "c"});
  AckAndLink({"a", "c"});
  EXPECT_TRUE(moves_->serves());
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, AStageOfAnotherClassDoesNotStay) {
  v1::Plan before = PlanOn({{"a", 11}, {"b", 12}});
  v1::Plan after = before;
  EXPECT_TRUE(StageStays(before, after, 0));
  EXPECT_TRUE(KvMayMove(before, after, false));
  after.mutable_numerics_class()->set_name("test-1:0-1+test-2:2-3");
  EXPECT_FALSE(StageStays(before, after, 0));
  EXPECT_FALSE(KvMayMove(before, after, false));
}

TEST_F(DeploymentMove, TheLostNodesReturnIsAsGoodAsAnother) {
  const auto sink = Ask("r1");
  moves_->OnNodeLost("b");
  moves_->BeginSearch();
  moves_->Load({{"a", 11}, {"b", 13}});
  EXPECT_EQ(ReasonOf(Move(PlanOn({{"a", 11}}))), "NOT_READY") << "found too late";
  moves_->SearchFailed(absl::UnavailableError("too late"));
  EXPECT_TRUE(moves_->problem().ok());
  Ready({"a", "b"});
  AckAndLink({"a", "b"});
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, ANodeThatCannotLoadIsAvoidedAndNobodyFailsForIt) {
  const auto sink = Ask("r1");
  moves_->OnNodeLost("b");
  ASSERT_TRUE(Move(PlanOn({{"a", 11}, {"c", 7}})).ok());
  v1::LoadProgress failed;
  failed.set_deployment(kId);
  failed.set_epoch(moves_->plan().epoch());
  failed.set_phase(v1::LoadProgress::PHASE_FAILED);
  *failed.mutable_error() =
      Error(absl::StatusCode::kResourceExhausted, "MEMORY_LIMIT", "no room").Detail();
  moves_->OnLoadProgress("c", failed);
  EXPECT_EQ(moves_->avoided(), std::set<std::string>{"c"});
  ASSERT_TRUE(moves_->WantsPlacement(host_.now));
  ASSERT_TRUE(Move(PlanOn({{"a", 11}, {"d", 8}})).ok());
  Ready({"a", "d"});
  AckAndLink({"a", "d"});
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  EXPECT_TRUE(moves_->avoided().empty());
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, AnAnswerThatComesAfterTheNodeIsNotWaitedFor) {
  moves_->OnNodeLost("b");
  moves_->BeginSearch();
  EXPECT_TRUE(moves_->searches());
  moves_->Load({{"a", 11}, {"b", 13}});
  EXPECT_FALSE(moves_->searches());
}

TEST_F(DeploymentMove, ANodeThatIsLostDuringTheMoveIsReplacedToo) {
  const auto sink = Ask("r1");
  moves_->OnNodeLost("b");
  ASSERT_TRUE(Move(PlanOn({{"a", 11}, {"c", 7}})).ok());
  moves_->OnNodeLost("c");
  ASSERT_TRUE(moves_->WantsPlacement(host_.now));
  ASSERT_TRUE(Move(PlanOn({{"a", 11}, {"d", 8}})).ok());
  Ready({"a", "d"});
  AckAndLink({"a", "d"});
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, ALeavingNodeIsLeftWithAllRequests) {
  const auto sink = Ask("r1");
  moves_->OnNodeLeaving("b");
  EXPECT_TRUE(moves_->serves());
  ASSERT_TRUE(moves_->WantsPlacement(host_.now));
  moves_->BeginSearch();
  ASSERT_TRUE(Move(PlanOn({{"a", 11}, {"c", 7}})).ok());
  EXPECT_EQ(host_.TakeUnloads("b").size(), 1u) << "it may stop now";
  Ready({"a", "c"});
  AckAndLink({"a", "c"});
  Commit("c", 7, 2, 32);
  EXPECT_TRUE(moves_->serves());
  EXPECT_EQ(host_.frames.back().header.items(0).sequence().request_id(), "r1");
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, WhereNothingElseHasRoomALeavingNodesRequestsEndFirst) {
  const auto sink = Ask("r1");
  moves_->OnNodeLeaving("b");
  moves_->BeginSearch();
  moves_->SearchFailed(absl::ResourceExhaustedError("no room"));
  EXPECT_FALSE(moves_->serves());
  moves_->Tick(host_.now);
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  EXPECT_TRUE(moves_->engine()->Cancel("r1", absl::OkStatus(), host_.now));
  moves_->Tick(host_.now);
  EXPECT_EQ(moves_->state(), DeploymentState::kWaiting);
}

TEST_F(DeploymentMove, ADrainedNodeIsLeftUnlessItIsTakenBackBefore) {
  moves_->OnNodeDraining("elsewhere", true);
  EXPECT_FALSE(moves_->WantsPlacement(host_.now));
  moves_->OnNodeDraining("b", true);
  EXPECT_TRUE(moves_->WantsPlacement(host_.now));
  EXPECT_TRUE(moves_->serves());
  moves_->OnNodeDraining("b", false);
  EXPECT_FALSE(moves_->WantsPlacement(host_.now));
  moves_->OnNodeDraining("a", true);
  moves_->OnNodeDraining("b", true);
  moves_->OnNodeDraining("a", false);
  EXPECT_TRUE(moves_->WantsPlacement(host_.now)) << "one is still drained";
  ASSERT_TRUE(Move(PlanOn({{"a", 11}, {"c", 7}})).ok());
  Ready({"a", "c"});
  AckAndLink({"a", "c"});
  EXPECT_TRUE(moves_->serves());
  EXPECT_FALSE(moves_->WantsPlacement(host_.now + seconds(60)));
}

// Breaks the pipeline's links until the deployment does something about it.
TEST_F(DeploymentMove, APipelineThatCannotBeMendedIsPlacedAnewUnlessThatIsInVain) {
  const auto sink = Ask("r1");
  const auto break_links = [&] {
    for (int i = 0; i < 200 && moves_->state() == DeploymentState::kReady; ++i) {
      v1::LinkFault fault;
      fault.set_deployment(kId);
      fault.set_epoch(moves_->engine()->epoch());
      *fault.mutable_error() =
          Error(absl::StatusCode::kUnavailable, "LINK_NOT_OPENED", "no route").Node("b").Detail();
      moves_->pipeline()->OnLinkFault("a", fault);
      moves_->Tick(host_.now);
      if (moves_->engine() != nullptr && moves_->engine()->down()) return;
      host_.now = moves_->NextWake().value_or(host_.now + seconds(1));
      moves_->Tick(host_.now);
    }
  };
  for (int i = 0; i < 3; ++i) {
    break_links();
    ASSERT_EQ(moves_->state(), DeploymentState::kWaiting) << i;
    EXPECT_TRUE(sink->failed.ok());
    ASSERT_TRUE(moves_->WantsPlacement(host_.now));
    ASSERT_TRUE(Move(PlanOn({{"a", 11}, {"c", 7}})).ok());
    Ready({"a", "c"});
    AckAndLink({"a", "c"});
    ASSERT_EQ(moves_->state(), DeploymentState::kReady);
  }
  break_links();
  EXPECT_EQ(ReasonOf(sink->failed), "PIPELINE_DOWN") << "it never got any further";
}

TEST_F(DeploymentMove, FasterNodesAreLookedForSomeTimeAfterANodeHasJoined) {
  const nanoseconds after = DeploymentOptions().better_after;
  EXPECT_FALSE(moves_->WantsBetter(host_.now + 10 * after));
  moves_->OnNodeJoined("c");
  EXPECT_FALSE(moves_->WantsBetter(host_.now));
  ASSERT_TRUE(moves_->WantsBetter(host_.now + after));
  EXPECT_EQ(moves_->NextWake(), host_.now + after);
  host_.now += after;
  moves_->OnNodeDraining("b", true);
  EXPECT_FALSE(moves_->WantsBetter(host_.now)) << "it leaves anyway";
  moves_->OnNodeDraining("b", false);
  host_.now += after;
  moves_->better().Asked();
  ASSERT_TRUE(Prepare(PlanOn({{"c", 7}})).ok());
  moves_->MovesToBetter();
  moves_->OnNodeJoined("d");
  EXPECT_FALSE(moves_->WantsBetter(host_.now + 10 * after)) << "it is on its way";
  Ready({"c"});
  AckAndLink({"c"});
  EXPECT_FALSE(moves_->WantsBetter(host_.now + after)) << "not to and fro";
  EXPECT_TRUE(moves_->WantsBetter(host_.now + 2 * after));
}

TEST_F(DeploymentMove, OthersLoadBesideWhatServesAndTakeItsPlaceOnceAllHaveLoaded) {
  const auto sink = Ask("r1");
  host_.messages.clear();
  const uint64_t loaded = moves_->plan().epoch();
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  EXPECT_TRUE(moves_->serves());
  EXPECT_TRUE(host_.prepares);
  EXPECT_EQ(ReasonOf(Prepare(PlanOn({{"c", 7}}))), "MOVE_IN_PROGRESS");
  EXPECT_EQ(ReasonOf(moves_->CheckResize(moves_->plan())), "NOT_READY");
  EXPECT_TRUE(host_.TakeLoads("a").empty()) << "its stage stays";
  const std::vector<v1::Load> loads = host_.TakeLoads("c");
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_TRUE(loads[0].beside());
  EXPECT_GT(loads[0].epoch(), loaded);
  EXPECT_TRUE(host_.TakeFences("c").empty());
  Ready({"c"});
  EXPECT_FALSE(moves_->prepares());
  EXPECT_FALSE(host_.prepares);
  EXPECT_TRUE(moves_->serves()) << "requests queue";
  EXPECT_EQ(host_.TakeUnloads("b").size(), 1u);
  EXPECT_TRUE(host_.TakeUnloads("a").empty());
  const v1::Fence stays = host_.TakeFences("a").back();
  EXPECT_EQ(stays.loaded_epoch(), loaded);
  EXPECT_EQ(stays.next().node(), "c");
  EXPECT_EQ(stays.next().incarnation(), 7u);
  EXPECT_EQ(stays.next().address(), "c:1");
  const v1::Fence fresh = host_.TakeFences("c").back();
  EXPECT_EQ(fresh.loaded_epoch(), loads[0].epoch());
  EXPECT_GT(fresh.epoch(), loads[0].epoch());
  EXPECT_FALSE(fresh.has_next()) << "it sends to the coordinator, as it was loaded to";
  AckAndLink({"a", "c"});
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  Commit("c", 7, 2, 32);
  EXPECT_EQ(host_.frames.back().header.items(0).sequence().request_id(), "r1");
  EXPECT_TRUE(sink->failed.ok());
  EXPECT_EQ(moves_->engine()->Snapshot(host_.now).counters.faults, 0u);
}

TEST_F(DeploymentMove, LinksAreOpenedAheadAndFoundByTheSwitch) {
  host_.links_ahead = true;
  const auto sink = Ask("r1");
  const uint64_t epoch = moves_->plan().epoch();
  const uint64_t loaded = epoch;
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  host_.messages.clear();
  const size_t dialled = host_.dialled.size();
  const uint64_t ahead = ReadyAndAhead({"c"});
  EXPECT_TRUE(moves_->prepares()) << "what serves goes on";
  EXPECT_EQ(moves_->plan().epoch(), epoch);
  const v1::Fence stays = host_.TakeFences("a").back();
  EXPECT_TRUE(stays.ahead());
  EXPECT_EQ(stays.loaded_epoch(), loaded);
  EXPECT_EQ(stays.next().node(), "c");
  EXPECT_EQ(stays.next().address(), "c:1");
  EXPECT_TRUE(host_.TakeFences("b").empty());
  const std::vector<Waiting> waits = moves_->Waits();
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_NE(waits[0].what.find("to link its stage"), std::string::npos);
  AckAhead({"a"}, ahead);
  EXPECT_EQ(host_.dialled.size(), dialled);
  const std::optional<uint64_t> results = OpenResults("c", 7, 2, ahead);
  ASSERT_TRUE(results.has_value());
  AckAhead({"c"}, ahead);
  ASSERT_EQ(host_.dialled.size(), dialled + 1);
  EXPECT_EQ(host_.dialled.back().request.open.epoch(), ahead);
  EXPECT_TRUE(moves_->prepares());
  OpenLastAheadAndDrain();
  EXPECT_FALSE(moves_->prepares());
  EXPECT_EQ(moves_->plan().epoch(), ahead);
  EXPECT_EQ(host_.TakeUnloads("b").size(), 1u);
  EXPECT_FALSE(host_.TakeFences("a").back().ahead());
  const size_t frames = host_.frames.size();
  v1::FenceAck ack;
  ack.set_deployment(kId);
  ack.set_epoch(ahead);
  moves_->pipeline()->OnFenceAck("a", ack);
  EXPECT_EQ(host_.frames.size(), frames) << "no frame before all stages are fenced";
  moves_->pipeline()->OnFenceAck("c", ack);
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  EXPECT_EQ(host_.dialled.size(), dialled + 1) << "no link is opened any more";
  ASSERT_GT(host_.frames.size(), frames);
  EXPECT_TRUE(host_.frames.back().header.resync());
  CommitOn(*results, 2, 32);
  EXPECT_EQ(host_.frames.back().header.items(0).sequence().request_id(), "r1");
  EXPECT_TRUE(sink->failed.ok());
  EXPECT_EQ(moves_->engine()->Snapshot(host_.now).counters.faults, 0u);
}

TEST_F(DeploymentMove, AStageThatGivesItsKvIsUnloadedOnceTheOtherHasIt) {
  host_.links_ahead = true;
  const auto sink = Ask("r1");
  const uint64_t loaded = moves_->plan().epoch();
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  host_.messages.clear();
  const uint64_t ahead = ReadyAndAhead({"c"});
  EXPECT_FALSE(host_.TakeFences("a").back().has_kv_from()) << "it stays";
  const v1::Fence fence = host_.TakeFences("c").back();
  EXPECT_EQ(fence.kv_from().worker().node(), "b");
  EXPECT_EQ(fence.kv_from().worker().incarnation(), 12u);
  EXPECT_EQ(fence.kv_from().worker().address(), "b:1");
  EXPECT_EQ(fence.kv_from().loaded_epoch(), loaded);
  const std::optional<uint64_t> results = OpenResults("c", 7, 2, ahead);
  ASSERT_TRUE(results.has_value());
  AckAhead({"a"}, ahead);
  AckAhead({"c"}, ahead, /*carried=*/true);
  OpenLastAheadAndDrain();
  EXPECT_EQ(moves_->plan().epoch(), ahead);
  EXPECT_TRUE(host_.TakeUnloads("b").empty()) << "it has the rest";
  v1::FenceAck ack;
  ack.set_deployment(kId);
  ack.set_epoch(ahead);
  moves_->pipeline()->OnFenceAck("a", ack);
  moves_->pipeline()->OnFenceAck("c", ack);
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  const auto unloads = host_.TakeUnloads("b");
  ASSERT_EQ(unloads.size(), 1u);
  EXPECT_EQ(unloads[0].loaded_epoch(), loaded);
  EXPECT_TRUE(host_.frames.back().header.resync());
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, AStageThatGivesItsKvIsUnloadedWhereTheOtherIsLost) {
  host_.links_ahead = true;
  const auto sink = Ask("r1");
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  host_.messages.clear();
  const uint64_t ahead = ReadyAndAhead({"c"});
  AckAhead({"a"}, ahead);
  AckAhead({"c"}, ahead, /*carried=*/true);
  OpenLastAheadAndDrain();
  EXPECT_TRUE(host_.TakeUnloads("b").empty());
  moves_->OnNodeLost("c");
  EXPECT_EQ(host_.TakeUnloads("b").size(), 1u);
}

TEST_F(DeploymentMove, ItSwitchesAtOnceWhereNoStepIsInFlight) {
  host_.links_ahead = true;
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  const uint64_t ahead = ReadyAndAhead({"c"});
  AckAhead({"a", "c"}, ahead);
  host_.OpenLast();
  EXPECT_FALSE(moves_->prepares());
  EXPECT_EQ(moves_->plan().epoch(), ahead);
}

TEST_F(DeploymentMove, WhatServesGoesOnWhereTheMoveIsGivenUpWhileStepsAreAwaited) {
  host_.links_ahead = true;
  const auto sink = Ask("r1");
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  const uint64_t ahead = ReadyAndAhead({"c"});
  AckAhead({"a", "c"}, ahead);
  host_.OpenLast();
  const size_t frames = host_.frames.size();
  const auto late = Ask("r2");
  EXPECT_EQ(host_.frames.size(), frames) << "no step is sent";
  host_.dialled.back().on_broken(absl::UnavailableError("it broke"));
  EXPECT_FALSE(moves_->prepares());
  EXPECT_GT(host_.frames.size(), frames);
  EXPECT_TRUE(late->failed.ok());
}

TEST_F(DeploymentMove, KvIsCarriedWhereTheLeastPagesAreNoFewer) {
  const v1::Plan before = PlanOn({{"a", 11}, {"b", 12}});
  for (const v1::Plan& after :
       {PlanOn({{"a", 11}, {"c", 7}}), PlanOn({{"b", 12}, {"a", 11}}), PlanOn({{"c", 7}}),
        PlanOn({{"a", 11}, {"b", 12}, {"c", 7}, {"d", 8}}, 40)}) {
    EXPECT_TRUE(KvMayMove(before, after, /*windows=*/false));
  }
  EXPECT_FALSE(KvMayMove(before, PlanOn({{"c", 7}, {"d", 8}}, 31), false)) << "fewer pages";
  v1::Plan more_of_one = before;
  more_of_one.mutable_pipelines(0)->mutable_stages(0)->set_kv_pages(0, 40);
  EXPECT_TRUE(KvMayMove(more_of_one, before, false)) << "nobody had more than 32";
  EXPECT_TRUE(KvMayMove(before, PlanOn({{"b", 12}, {"a", 11}}), /*windows=*/true));
  EXPECT_FALSE(KvMayMove(before, PlanOn({{"c", 7}}), true)) << "accounts of windows would change";
}

TEST_F(DeploymentMove, NodesThatSwapTheirStagesTakeOverEachOthersKv) {
  host_.links_ahead = true;
  const auto sink = Ask("r1");
  const uint64_t loaded = moves_->plan().epoch();
  host_.messages.clear();
  ASSERT_TRUE(Prepare(PlanOn({{"b", 12}, {"a", 11}})).ok());
  const uint64_t ahead = ReadyAndAhead({"a", "b"});
  for (const auto& [node, other] : {std::pair("a", "b"), std::pair("b", "a")}) {
    const v1::Fence fence = host_.TakeFences(node).back();
    EXPECT_EQ(fence.kv_from().worker().node(), other);
    EXPECT_EQ(fence.kv_from().loaded_epoch(), loaded);
  }
  ASSERT_TRUE(OpenResults("a", 11, 2, ahead).has_value());
  AckAhead({"a", "b"}, ahead, /*carried=*/true);
  OpenLastAheadAndDrain();
  EXPECT_TRUE(host_.TakeUnloads("a").empty()) << "it has the rest";
  v1::FenceAck ack;
  ack.set_deployment(kId);
  ack.set_epoch(ahead);
  moves_->pipeline()->OnFenceAck("a", ack);
  moves_->pipeline()->OnFenceAck("b", ack);
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  for (const char* const node : {"a", "b"}) {
    const auto unloads = host_.TakeUnloads(node);
    ASSERT_EQ(unloads.size(), 1u);
    EXPECT_EQ(unloads[0].loaded_epoch(), loaded) << "of the old stage alone";
  }
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, AStageIsToldOfEachThatHasLayersOfIt) {
  host_.links_ahead = true;
  const auto sink = Ask("r1");
  const uint64_t loaded = moves_->plan().epoch();
  host_.messages.clear();
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}})).ok());
  const uint64_t ahead = ReadyAndAhead({"a"});
  const std::vector<v1::Fence> fences = host_.TakeFences("a");
  ASSERT_EQ(fences.size(), 2u);
  EXPECT_EQ(fences[0].kv_from().worker().node(), "a");
  EXPECT_EQ(fences[1].kv_from().worker().node(), "b");
  for (const v1::Fence& fence : fences) {
    EXPECT_TRUE(fence.ahead());
    EXPECT_EQ(fence.epoch(), ahead);
    EXPECT_EQ(fence.kv_from().loaded_epoch(), loaded);
  }
  ASSERT_TRUE(OpenResults("a", 11, 1, ahead).has_value());
  AckAhead({"a"}, ahead, /*carried=*/true);
  OpenLastAheadAndDrain();
  const size_t frames = host_.frames.size();
  v1::FenceAck ack;
  ack.set_deployment(kId);
  ack.set_epoch(ahead);
  moves_->pipeline()->OnFenceAck("a", ack);
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  ASSERT_GT(host_.frames.size(), frames);
  EXPECT_TRUE(host_.frames.back().header.resync());
  EXPECT_EQ(host_.TakeUnloads("b").size(), 1u);
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, APlacementThatCannotBeLinkedIsGivenUp) {
  host_.links_ahead = true;
  const auto sink = Ask("r1");
  const uint64_t epoch = moves_->plan().epoch();
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  v1::FenceAck ack;
  ack.set_deployment(kId);
  ack.set_epoch(ReadyAndAhead({"c"}));
  ack.set_ahead(true);
  *ack.mutable_error() =
      Error(absl::StatusCode::kUnavailable, "LINK_NOT_OPENED", "nobody answers").Node("a").Detail();
  moves_->pipeline()->OnFenceAck("a", ack);
  EXPECT_FALSE(moves_->prepares());
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  EXPECT_EQ(moves_->plan().epoch(), epoch) << "what serves was not touched";
  EXPECT_EQ(ReasonOf(moves_->move_problem()), "LINK_NOT_OPENED");
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, APlacementThatIsNotLinkedInTimeIsGivenUp) {
  host_.links_ahead = true;
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  ReadyAndAhead({"c"});
  EXPECT_LE(moves_->NextWake(), host_.now + 4 * DeploymentOptions().step_timeout);
  host_.now += 4 * DeploymentOptions().step_timeout;
  moves_->Tick(host_.now);
  EXPECT_FALSE(moves_->prepares());
  EXPECT_EQ(ReasonOf(moves_->move_problem()), "LINKS_NOT_OPENED");
  EXPECT_EQ(DetailOf(moves_->move_problem()).node(), "c") << "the last that did not";
  EXPECT_EQ(moves_->engine()->Snapshot(host_.now).counters.faults, 0u);
}

TEST_F(DeploymentMove, AFaultWhileLinksAreOpenedAheadIsAsGoodATimeToSwitchAsAny) {
  host_.links_ahead = true;
  const auto sink = Ask("r1");
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  const uint64_t ahead = ReadyAndAhead({"c"});
  AckAhead({"a"}, ahead);
  moves_->pipeline()->OnLinkFault("b", FaultOf(moves_->plan().epoch()));
  EXPECT_LT(moves_->plan().epoch(), ahead) << "not the epoch of the links";
  EXPECT_LE(moves_->NextWake(), host_.now);
  moves_->Tick(host_.now);
  EXPECT_FALSE(moves_->prepares());
  EXPECT_GT(moves_->plan().epoch(), ahead) << "another one has closed them";
  AckAhead({"c"}, ahead);
  AckAndLink({"a", "c"});
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, WhatSecondMovesLeaveInPlaceIsNamedByItsFirstLoad) {
  const uint64_t loaded = moves_->plan().epoch();
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  Ready({"c"});
  AckAndLink({"a", "c"});
  Commit("c", 7, 2, 32);
  host_.messages.clear();
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"d", 8}})).ok());
  Ready({"d"});
  EXPECT_EQ(host_.TakeFences("a").back().loaded_epoch(), loaded);
  EXPECT_EQ(host_.TakeUnloads("c").size(), 1u);
}

TEST_F(DeploymentMove, ANodeWithOtherLayersLoadsThemBesideThoseThatItHas) {
  host_.messages.clear();
  ASSERT_TRUE(Prepare(PlanOn({{"b", 12}, {"a", 11}})).ok());
  EXPECT_TRUE(host_.TakeLoads("a").back().beside());
  EXPECT_TRUE(host_.TakeLoads("b").back().beside());
  Ready({"a"});
  EXPECT_TRUE(moves_->prepares());
  Ready({"b"});
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u) << "of the old stage, if the fence left it there";
  AckAndLink({"a", "b"});
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
}

TEST_F(DeploymentMove, WhatCannotBeLoadedBesideIsGivenUpAndTheOldPlacementGoesOn) {
  const auto sink = Ask("r1");
  moves_->OnNodeDraining("b", true);
  moves_->BeginSearch();
  host_.messages.clear();
  const v1::Plan before = moves_->plan();
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  EXPECT_FALSE(moves_->WantsPlacement(host_.now + seconds(60))) << "it has one";
  const uint64_t epoch = moves_->next()->epoch();
  moves_->OnLoadProgress("c", FailedOfNext());
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  EXPECT_FALSE(moves_->prepares());
  EXPECT_EQ(ReasonOf(moves_->move_problem()), "MEMORY_LIMIT");
  const std::vector<v1::Unload> unloads = host_.TakeUnloads("c");
  ASSERT_EQ(unloads.size(), 1u);
  EXPECT_EQ(unloads[0].loaded_epoch(), epoch) << "of that alone";
  EXPECT_TRUE(host_.TakeUnloads("a").empty());
  EXPECT_EQ(moves_->plan().epoch(), before.epoch());
  EXPECT_EQ(moves_->avoided(), std::set<std::string>{"c"});
  ASSERT_TRUE(moves_->WantsPlacement(host_.now)) << "without that one";
  moves_->BeginSearch();
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"d", 8}})).ok());
  EXPECT_TRUE(moves_->move_problem().ok());
  EXPECT_GT(moves_->next()->epoch(), epoch) << "a late word is of the one before";
  Ready({"d"});
  AckAndLink({"a", "d"});
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, ANodeThatIsLostWhileOthersLoadIsReplacedAtOnce) {
  const auto sink = Ask("r1");
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  host_.messages.clear();
  moves_->OnNodeLost("c");
  EXPECT_EQ(moves_->state(), DeploymentState::kReady) << "what serves has all it needs";
  EXPECT_EQ(ReasonOf(moves_->move_problem()), "NODE_LOST");
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"d", 8}})).ok());
  moves_->OnNodeLost("b");
  EXPECT_EQ(moves_->state(), DeploymentState::kWaiting);
  EXPECT_EQ(host_.TakeUnloads("d").size(), 1u);
  EXPECT_FALSE(host_.prepares);
  ASSERT_TRUE(moves_->WantsPlacement(host_.now));
  ASSERT_TRUE(Move(PlanOn({{"a", 11}, {"d", 8}})).ok());
  Ready({"a", "d"});
  AckAndLink({"a", "d"});
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, RequestsThatCameMeanwhileMustFitToo) {
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}}, /*pages=*/1)).ok());
  const auto sink = Ask("r1");
  Ready({"a", "c"});
  EXPECT_FALSE(moves_->prepares());
  EXPECT_EQ(ReasonOf(moves_->move_problem()), "KV_IN_USE");
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentMove, ASilentLoadBesideWhatServesIsGivenUp) {
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  EXPECT_EQ(moves_->Waits().size(), 1u);
  host_.now += kLoadTimeout;
  moves_->Tick(host_.now);
  EXPECT_EQ(ReasonOf(moves_->move_problem()), "LOAD_TIMEOUT");
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
}

TEST_F(DeploymentMove, AFaultWhileOthersLoadIsMendedAsEver) {
  ASSERT_TRUE(Prepare(PlanOn({{"a", 11}, {"c", 7}})).ok());
  host_.messages.clear();
  v1::LinkFault fault;
  fault.set_deployment(kId);
  fault.set_epoch(moves_->engine()->epoch());
  *fault.mutable_error() = Error(absl::StatusCode::kUnavailable, "LINK_BROKEN", "broken").Detail();
  moves_->pipeline()->OnLinkFault("a", fault);
  EXPECT_EQ(host_.TakeFences("b").size(), 1u);
  AckAndLink({"a", "b"});
  Commit("b", 12, 2, 32);
  EXPECT_TRUE(moves_->prepares());
  const uint64_t epoch = moves_->plan().epoch();
  Ready({"c"});
  EXPECT_GT(host_.TakeFences("c").back().epoch(), epoch);
  AckAndLink({"a", "c"});
  EXPECT_EQ(moves_->state(), DeploymentState::kReady);
}

TEST_F(DeploymentMove, AModelToBeLoadedWaitsAWhileForItsNodes) {
  v1::LoadOptions options = MakeOptions(512);
  options.set_recovery(v1::RECOVERY_MOVE);
  Deployment restored(kId + 1, std::make_shared<TestModel>(), MakePlan(32), options, RotaryBlob(),
                      DeploymentOptions(), &host_);
  const TimePoint at = host_.now + DeploymentOptions().placement_grace;
  EXPECT_FALSE(restored.WantsPlacement(at - milliseconds(1)));
  EXPECT_TRUE(restored.WantsPlacement(at));
  EXPECT_EQ(restored.NextWake(), at);
}

TEST_F(DeploymentMove, OtherwiseItNeverLeavesItsNodes) {
  for (const v1::Recovery recovery : {v1::RECOVERY_WAIT, v1::RECOVERY_OFF}) {
    v1::LoadOptions options = MakeOptions(512);
    options.set_recovery(recovery);
    moves_ = std::make_unique<Deployment>(kId, std::make_shared<TestModel>(), MakePlan(32), options,
                                          RotaryBlob(), DeploymentOptions(), &host_);
    moves_->OnRecorded(moves_->Record().plan.epoch(), absl::OkStatus());
    moves_->Load({{"a", 11}, {"b", 12}});
    Ready({"a", "b"});
    AckAndLink({"a", "b"});
    const auto sink = Ask("r1");
    moves_->OnNodeDraining("b", true);
    moves_->OnNodeLost("b");
    EXPECT_FALSE(moves_->WantsPlacement(host_.now + seconds(3600)));
    EXPECT_EQ(sink->failed.ok(), recovery == v1::RECOVERY_WAIT);
    EXPECT_EQ(moves_->state(), DeploymentState::kWaiting);
  }
}

}  // namespace
}  // namespace strata
