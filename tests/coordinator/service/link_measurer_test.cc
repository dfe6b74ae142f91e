#include "coordinator/service/nodes/link_measurer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/coordinator/deployment/deployment_fixture.h"
#include "tests/coordinator/deployment/fake_deployment_host.h"

namespace strata {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr nanoseconds kAgain = seconds(5);

class LinkMeasurerTest : public ::testing::Test {
 protected:
  LinkMeasurerTest()
      : measurer_(kAgain, &cluster_, &deployments_, &streams_,
                  [this](const v1::NodeInfo& node) { from_here_.push_back(node.name()); }) {}

  void Join(const std::string& name, uint64_t incarnation) {
    v1::NodeInfo info;
    info.set_name(name);
    info.set_incarnation(incarnation);
    info.set_address(name + ":1");
    ASSERT_TRUE(cluster_.Join(info, now_).ok());
    channels_[name] = std::make_shared<NodeChannel>();
    streams_.Open(name, incarnation, channels_[name]);
    cluster_.SetLink(name, "", {0.1, 1e9, {}, 0}, now_);
    measurer_.OnJoined(name, now_);
  }
  // The nodes that `node` was asked to measure its link to, since the last call.
  std::vector<std::string> Asked(const std::string& node) {
    std::vector<std::string> peers;
    while (const auto message = channels_[node]->TryNext()) {
      EXPECT_TRUE(message->has_measure_peer());
      peers.push_back(message->measure_peer().node());
    }
    return peers;
  }
  void Answer(const std::string& node, const std::string& peer, const std::string& reason = "") {
    v1::PeerMeasured measured;
    measured.set_node(peer);
    const NodeRecord* record = cluster_.Find(peer);
    measured.set_incarnation(record != nullptr ? record->info.incarnation() : 9);
    measured.set_latency_ms(0.1);
    measured.set_bytes_per_s(1e9);
    if (!reason.empty()) {
      *measured.mutable_error() =
          Error(absl::StatusCode::kUnavailable, reason, "it does not answer").Detail();
    }
    measurer_.OnMeasured(node, measured, now_);
  }
  void Pass(nanoseconds time) {
    now_ += time;
    measurer_.Tick(now_);
  }

  TimePoint now_ = seconds(1000);
  ClusterState cluster_{{}};
  Deployments deployments_;
  ControlStreams streams_;
  std::vector<std::string> from_here_;
  std::map<std::string, std::shared_ptr<NodeChannel>> channels_;
  FakeDeploymentHost host_;
  LinkMeasurer measurer_;
};

TEST_F(LinkMeasurerTest, AJoinHasBothDirectionsMeasured) {
  Join("a", 1);
  EXPECT_THAT(Asked("a"), IsEmpty());
  Join("b", 2);
  Join("c", 3);
  EXPECT_THAT(Asked("a"), ElementsAre("b", "c"));
  EXPECT_THAT(Asked("b"), UnorderedElementsAre("a", "c"));
  EXPECT_THAT(Asked("c"), UnorderedElementsAre("a", "b"));
}

TEST_F(LinkMeasurerTest, ABrokenLinkIsMeasuredAgainUntilItWorks) {
  Join("a", 1);
  Join("b", 2);
  Asked("a");
  Asked("b");
  Answer("a", "b", "UNREACHABLE");
  Answer("b", "a");
  EXPECT_FALSE(cluster_.Find("a")->links.at("b").ok());
  for (int i = 0; i < 2; ++i) {
    Pass(kAgain + nanoseconds(1));
    EXPECT_THAT(Asked("a"), ElementsAre("b"));
    EXPECT_THAT(Asked("b"), IsEmpty());
    Answer("a", "b", "UNREACHABLE");
    Pass(kAgain / 2);
    EXPECT_THAT(Asked("a"), IsEmpty());
  }
  Answer("a", "b");
  Pass(kAgain + nanoseconds(1));
  EXPECT_THAT(Asked("a"), IsEmpty());
  EXPECT_THAT(from_here_, IsEmpty());
}

TEST_F(LinkMeasurerTest, TheLinkFromHereIsMeasuredAgainWhileItIsBroken) {
  Join("a", 1);
  const v1::NodeInfo info = cluster_.Find("a")->info;
  measurer_.OnMeasuredFromHere(info, absl::UnavailableError("no route"), now_);
  Pass(kAgain + nanoseconds(1));
  EXPECT_THAT(from_here_, ElementsAre("a"));
  measurer_.OnMeasuredFromHere(info, LinkMeasure{0.2, 1e9, {}, 0}, now_);
  Pass(kAgain + nanoseconds(1));
  EXPECT_THAT(from_here_, ElementsAre("a"));
  // What was measured of an earlier process of the node says nothing of this one.
  v1::NodeInfo earlier = info;
  earlier.set_incarnation(7);
  measurer_.OnMeasuredFromHere(earlier, absl::UnavailableError("no route"), now_);
  EXPECT_TRUE(cluster_.Find("a")->links.at("").ok());
}

TEST_F(LinkMeasurerTest, ANodeThatSaysNothingIsAskedAgain) {
  Join("a", 1);
  Join("b", 2);
  Asked("a");
  Answer("b", "a");
  Asked("b");
  Pass(cluster_.options().measure_timeout);
  EXPECT_THAT(Asked("a"), ElementsAre("b"));
  EXPECT_THAT(Asked("b"), IsEmpty());
}

TEST_F(LinkMeasurerTest, AnAnswerAboutANodeThatIsNotKnownIsOfNoAccount) {
  Join("a", 1);
  Answer("a", "stranger");
  EXPECT_FALSE(cluster_.Find("a")->links.contains("stranger"));
}

// A model on "a" and "b", which is to move from "b" to "c".
class LinksOfAModel : public DeploymentTest {
 protected:
  LinksOfAModel()
      : measurer_(kAgain, &cluster_, &deployments_, &streams_,
                  [this](const v1::NodeInfo& node) { from_here_.push_back(node.name()); }) {
    for (const auto& [name, incarnation] :
         std::map<std::string, uint64_t>({{"a", 11}, {"b", 12}, {"c", 13}})) {
      v1::NodeInfo info;
      info.set_name(name);
      info.set_incarnation(incarnation);
      EXPECT_TRUE(cluster_.Join(info, host_.now).ok());
      channels_[name] = std::make_shared<NodeChannel>();
      streams_.Open(name, incarnation, channels_[name]);
      cluster_.SetLink(name, "", {0.1, 1e9, {}, 0}, host_.now);
    }
    auto model =
        std::make_unique<Deployment>(kId, std::make_shared<TestModel>(), MakePlan(32),
                                     MakeOptions(512), RotaryBlob(), DeploymentOptions(), &host_);
    model_ = model.get();
    deployments_.Add(std::move(model));
    model_->OnRecorded(model_->Record().plan.epoch(), absl::OkStatus());
    model_->Load({{"a", 11}, {"b", 12}});
    Loaded({"a", "b"});
    Linked({"a", "b"});
    Pass();
  }

  void Loaded(const std::vector<std::string>& nodes) {
    v1::LoadProgress progress;
    progress.set_deployment(kId);
    progress.set_epoch((model_->prepares() ? *model_->next() : model_->plan()).epoch());
    progress.set_phase(v1::LoadProgress::PHASE_READY);
    for (const std::string& node : nodes) model_->OnLoadProgress(node, progress);
  }
  void Linked(const std::vector<std::string>& nodes) {
    v1::FenceAck ack;
    ack.set_deployment(kId);
    ack.set_epoch(model_->plan().epoch());
    for (const std::string& node : nodes) model_->pipeline()->OnFenceAck(node, ack);
    host_.OpenLast();
    EXPECT_EQ(model_->state(), DeploymentState::kReady);
  }
  void BreakLinkOf(const std::string& node) {
    v1::LinkFault fault;
    fault.set_deployment(kId);
    fault.set_epoch(model_->plan().epoch());
    *fault.mutable_error() =
        Error(absl::StatusCode::kUnavailable, "LINK_BROKEN", "it broke").Detail();
    model_->pipeline()->OnLinkFault(node, fault);
  }
  // Whom "a" and the coordinator measured their links to meanwhile.
  std::vector<std::string> Pass() {
    host_.now += seconds(2);
    measurer_.Tick(host_.now);
    std::vector<std::string> measured = std::exchange(from_here_, {});
    while (const auto message = channels_["a"]->TryNext()) {
      measured.push_back(message->measure_peer().node());
    }
    return measured;
  }

  ClusterState cluster_{{}};
  Deployments deployments_;
  Deployment* model_ = nullptr;
  ControlStreams streams_;
  std::vector<std::string> from_here_;
  std::map<std::string, std::shared_ptr<NodeChannel>> channels_;
  LinkMeasurer measurer_;
};

TEST_F(LinksOfAModel, AreMeasuredAfterAFaultAndNotBecauseItMoved) {
  EXPECT_THAT(Pass(), IsEmpty());
  v1::Plan plan = MakePlan(32);
  plan.mutable_pipelines(0)->mutable_stages(0)->mutable_ranks(0)->set_incarnation(11);
  v1::PlanRank* const other = plan.mutable_pipelines(0)->mutable_stages(1)->mutable_ranks(0);
  other->set_node("c");
  other->set_incarnation(13);
  ASSERT_TRUE(model_->Move(plan, Deployment::MoveWay::kPrepare).ok());
  Loaded({"c"});
  Linked({"a", "c"});
  EXPECT_THAT(Pass(), IsEmpty()) << "nothing is wrong with them";
  BreakLinkOf("c");
  Linked({"a", "c"});
  EXPECT_THAT(Pass(), ElementsAre("a", "c"));
  EXPECT_THAT(Pass(), IsEmpty());
}

TEST_F(LinksOfAModel, OfTheFirstRankToTheOthersAreMeasuredToo) {
  v1::Plan plan = MakePlan(32);
  v1::PlanStage* const shared = plan.mutable_pipelines(0)->mutable_stages(0);
  shared->mutable_ranks(0)->set_incarnation(11);
  shared->mutable_ranks(0)->set_share_end(32768);
  v1::PlanRank* const follower = shared->add_ranks();
  follower->set_node("c");
  follower->set_incarnation(13);
  follower->set_share_begin(32768);
  follower->set_share_end(65536);
  plan.mutable_pipelines(0)->mutable_stages(1)->mutable_ranks(0)->set_incarnation(12);
  ASSERT_TRUE(model_->Move(plan, Deployment::MoveWay::kPause).ok());
  Loaded({"a", "b", "c"});
  Linked({"a", "b"});
  BreakLinkOf("a");
  Linked({"a", "b"});
  EXPECT_THAT(Pass(), ElementsAre("a", "c", "b"));
  EXPECT_THAT(Pass(), IsEmpty());
}

}  // namespace
}  // namespace strata
