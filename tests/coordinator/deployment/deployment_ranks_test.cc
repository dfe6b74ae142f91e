// A deployment whose first stage is computed by two nodes together.
#include <gtest/gtest.h>

#include "common/status.h"
#include "coordinator/deployment/deployment.h"
#include "tests/coordinator/deployment/deployment_fixture.h"

namespace strata {
namespace {

using std::chrono::seconds;

class DeploymentRanksTest : public DeploymentTest {
 protected:
  // "a" has the first rank of the first stage, "c" the other one.
  static v1::Plan PlanOfRanks() {
    v1::Plan plan = MakePlan(32);
    v1::PlanStage* stage = plan.mutable_pipelines(0)->mutable_stages(0);
    stage->mutable_ranks(0)->set_share_end(40000);
    v1::PlanRank* rank = stage->add_ranks();
    rank->set_node("c");
    rank->set_share_begin(40000);
    rank->set_share_end(65536);
    return plan;
  }
  DeploymentRanksTest() : DeploymentTest(PlanOfRanks()) {}

  void LoadAll() {
    Record();
    deployment_.Load({{"a", 11}, {"b", 12}, {"c", 13}});
  }
  void AllReady() {
    BothReady();
    Progress("c", v1::LoadProgress::PHASE_READY, deployment_.plan().epoch());
  }
  void MakeAllReady() {
    LoadAll();
    AllReady();
    BothAckAndLink();
    Commit(OpenResults(), 32);
    host_.messages.clear();
  }
};

TEST_F(DeploymentRanksTest, EachRankIsToldWhichItIsAndWhereTheOthersAre) {
  LoadAll();
  const std::vector<v1::Load> first = host_.TakeLoads("a");
  const std::vector<v1::Load> second = host_.TakeLoads("c");
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(first[0].ranks().rank(), 0u);
  EXPECT_EQ(second[0].ranks().rank(), 1u);
  for (const v1::Load& load : {first[0], second[0]}) {
    EXPECT_EQ(load.epoch(), deployment_.plan().epoch());
    EXPECT_EQ(load.first_layer(), 0u);
    EXPECT_EQ(load.next_node(), "b");
    ASSERT_EQ(load.ranks().of_size(), 2);
    EXPECT_EQ(load.ranks().of(0).worker().node(), "a");
    EXPECT_EQ(load.ranks().of(1).worker().node(), "c");
    EXPECT_EQ(load.ranks().of(1).worker().incarnation(), 13u);
    EXPECT_EQ(load.ranks().of(1).worker().address(), "c:1");
    EXPECT_EQ(load.ranks().of(1).share_begin(), 40000u);
    EXPECT_EQ(load.ranks().of(1).share_end(), 65536u);
  }
  const std::vector<v1::Load> last = host_.TakeLoads("b");
  ASSERT_EQ(last.size(), 1u);
  EXPECT_FALSE(last[0].has_ranks());
}

TEST_F(DeploymentRanksTest, FencesGoToTheFirstRankOnceAllHaveLoaded) {
  LoadAll();
  BothReady();
  EXPECT_TRUE(host_.TakeFences("a").empty()) << "the other rank has not loaded";
  Progress("c", v1::LoadProgress::PHASE_READY, deployment_.plan().epoch());
  EXPECT_EQ(host_.TakeFences("a").size(), 1u);
  EXPECT_EQ(host_.TakeFences("b").size(), 1u);
  EXPECT_TRUE(host_.TakeFences("c").empty());
  BothAckAndLink();
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
}

TEST_F(DeploymentRanksTest, ARankThatCannotLoadFailsTheLoadAndAllAreUnloaded) {
  LoadAll();
  Progress("c", v1::LoadProgress::PHASE_FAILED, deployment_.plan().epoch());
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
  EXPECT_EQ(DetailOf(deployment_.problem()).node(), "c");
  for (const char* node : {"a", "b", "c"}) {
    EXPECT_EQ(host_.TakeUnloads(node).size(), 1u) << node;
  }
}

TEST_F(DeploymentRanksTest, ALostRankIsALostStage) {
  MakeAllReady();
  const auto sink = Submit("r1", 10, 10);
  deployment_.OnNodeLost("c");
  EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  EXPECT_EQ(DetailOf(deployment_.problem()).node(), "c");
  EXPECT_EQ(host_.TakeUnloads("a").size(), 1u);
  // All load again in its new life.
  deployment_.Load({{"a", 11}, {"b", 12}, {"c", 14}});
  EXPECT_EQ(host_.TakeLoads("a")[0].ranks().of(1).worker().incarnation(), 14u);
  EXPECT_EQ(host_.TakeLoads("c").size(), 1u);
  AllReady();
  BothAckAndLink();
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  EXPECT_TRUE(sink->failed.ok());
}

TEST_F(DeploymentRanksTest, AChangeOfKvLoadsAllRanksInTheirLives) {
  MakeAllReady();
  v1::Plan more = PlanOfRanks();
  for (v1::PlanStage& stage : *more.mutable_pipelines(0)->mutable_stages()) {
    stage.set_kv_pages(0, 64);
  }
  ASSERT_TRUE(deployment_.Resize(more, MakeOptions(1024)).ok());
  for (const char* node : {"a", "c"}) {
    const std::vector<v1::Load> loads = host_.TakeLoads(node);
    ASSERT_EQ(loads.size(), 1u) << node;
    EXPECT_EQ(loads[0].kv_pages(0), 64u);
    EXPECT_EQ(loads[0].ranks().of(1).worker().incarnation(), 13u);
  }
}

TEST_F(DeploymentRanksTest, AnUnloadGoesToAllRanks) {
  MakeAllReady();
  deployment_.Unload(absl::CancelledError("unloaded"));
  for (const char* node : {"a", "b", "c"}) {
    EXPECT_EQ(host_.TakeUnloads(node).size(), 1u) << node;
  }
}

}  // namespace
}  // namespace strata
