#include "coordinator/planner/ranked_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/footprint/rank_footprint.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/planner/asked.h"
#include "coordinator/planner/rank_comparison.h"
#include "coordinator/planner/rank_groups.h"
#include "coordinator/planner/replacement.h"
#include "tests/coordinator/planner/planner_testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kGiB;
using testing::kMiB;
using testing::MakeCluster;
using testing::MakeRequest;

PlannerNode Node(std::string name, double gigabytes_per_s, uint64_t free_bytes = 64 * kGiB) {
  return testing::MakeNode(std::move(name), free_bytes, gigabytes_per_s, 1e6);
}

PlannerModel Model() { return testing::MakeModel(8, 4096, 11264, 32, 8, 32000); }

PlannerRequest Request(uint32_t ranks, v1::PlanGoal goal = v1::PLAN_GOAL_LATENCY) {
  PlannerRequest request = MakeRequest(goal, 4096);
  request.options.set_ranks(ranks);
  return request;
}

constexpr PlannerLink kNear = {.latency_ms = 0.02, .bytes_per_s = 1e10};

std::vector<std::string> Names(const v1::Plan& plan) {
  std::vector<std::string> names;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    names.push_back(NodesOf(stage) + ":" + std::to_string(stage.first_layer()) + "-" +
                    std::to_string(stage.last_layer()));
  }
  return names;
}

std::vector<uint32_t> Shares(const v1::PlanStage& stage) {
  std::vector<uint32_t> shares;
  for (const v1::PlanRank& rank : stage.ranks()) {
    shares.push_back(rank.share_end() - rank.share_begin());
  }
  return shares;
}

v1::LoadOptions::PinnedLayers* Pin(PlannerRequest* request, uint32_t first, uint32_t last) {
  v1::LoadOptions::PinnedLayers* pin = request->options.add_layers();
  pin->set_first_layer(first);
  pin->set_last_layer(last);
  return pin;
}

void PinRank(const std::string& node, uint32_t weight, v1::LoadOptions::PinnedLayers* pin) {
  v1::LoadOptions::PinnedRank* rank = pin->add_ranks();
  rank->set_node(node);
  rank->set_weight(weight);
}

std::string Reason(const absl::StatusOr<v1::Plan>& plan) { return ReasonOf(plan.status()); }

TEST(RankedPlan, TwoNodesComputeOneStageByTheirBandwidth) {
  const auto plan =
      MakePlan(MakeCluster({Node("a", 20), Node("b", 10)}, kNear), Model(), Request(/*ranks=*/2));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(CheckPlanShape(*plan).ok());
  EXPECT_THAT(Names(*plan), ElementsAre("a+b:0-7"));
  const v1::PlanStage& stage = OnlyPipeline(*plan).stages(0);
  EXPECT_THAT(Shares(stage), ElementsAre(43691, 21845));
  EXPECT_EQ(stage.weight_bytes(), stage.ranks(0).weight_bytes() + stage.ranks(1).weight_bytes());
  EXPECT_EQ(stage.kv_bytes(), stage.ranks(0).kv_bytes() + stage.ranks(1).kv_bytes());
  EXPECT_GT(stage.ranks(0).weight_bytes(), stage.ranks(1).weight_bytes());
  EXPECT_EQ(plan->lower_bound_gap(), 0);
}

TEST(RankedPlan, TakesNearlyTheSumOfTwoBandwidthsAndWhatGathersTake) {
  const PlannerCluster cluster = MakeCluster({Node("a", 20), Node("b", 20)}, kNear);
  const PlannerModel model = Model();
  const double alone = MakePlan(cluster, model, Request(1))->predicted_tokens_per_s();
  const double both = MakePlan(cluster, model, Request(2))->predicted_tokens_per_s();
  EXPECT_GT(both, 1.7 * alone);
  EXPECT_LT(both, 2 * alone);
  PlannerCluster far = cluster;
  far.links[0][1] = far.links[1][0] = {.latency_ms = 5, .bytes_per_s = 1e10};
  const auto slow = MakePlan(far, model, Request(2));
  // Four gathers a layer, of the rows that a stage begins with, and of logits, each 5 ms later.
  const double later = (4 * 8 + 2) * (5 - 0.02);
  EXPECT_NEAR(1e3 / slow->predicted_tokens_per_s(), 1e3 / both + later, 1e-6);
}

TEST(RankedPlan, MemoryIsCountedByRank) {
  const PlannerModel model = Model();
  const PlannerRequest request = Request(2);
  const PlannerCluster cluster = MakeCluster({Node("a", 20), Node("b", 10)}, kNear);
  const AskedKv kv = AskedKvOf(request.options);
  const RankGroups groups(cluster, model,
                          {{.nodes = {0, 1}, .shares = {{0, 43691}, {43691, 65536}}}}, kv,
                          request.options.max_batch_tokens());
  for (size_t rank = 0; rank < 2; ++rank) {
    PlannerCluster tight = cluster;
    const uint64_t needs = groups.RankBytes(0, rank, 0, 8, kv.pages);
    tight.nodes[rank].free_bytes = needs;
    EXPECT_TRUE(MakePlan(tight, model, request).ok());
    tight.nodes[rank].free_bytes = needs - 1;
    const auto refused = MakePlan(tight, model, request);
    EXPECT_EQ(Reason(refused), "MODEL_DOES_NOT_FIT");
    EXPECT_EQ(DetailOf(refused.status()).node(), tight.nodes[rank].name);
  }
  // 8 KV heads: 5 of one rank, 3 of the other, and none twice.
  EXPECT_EQ(groups.KvBytes(0, 0, 0, 8, 3) * 3, groups.KvBytes(0, 1, 0, 8, 3) * 5);
}

TEST(RankedPlan, GroupsHaveNodesThatAreNear) {
  PlannerCluster cluster =
      MakeCluster({Node("a", 20), Node("far", 20), Node("near", 20), Node("d", 20)}, kNear);
  for (const size_t other : {1, 3}) {
    cluster.links[0][other] = cluster.links[other][0] = {.latency_ms = 3, .bytes_per_s = 1e9};
    cluster.links[2][other] = cluster.links[other][2] = {.latency_ms = 3, .bytes_per_s = 1e9};
  }
  const auto plan = MakePlan(cluster, Model(), Request(2, v1::PLAN_GOAL_THROUGHPUT));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(Names(*plan), ElementsAre("a+near:0-3", "far+d:4-7"));
}

TEST(RankedPlan, AModelThatFitsNoGroupAloneGoesOverSeveral) {
  const PlannerModel model = Model();
  std::vector<PlannerNode> nodes;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    nodes.push_back(Node(name, 20, model.layer_bytes[0] * 3 + 512 * kMiB));
  }
  const auto two = MakePlan(MakeCluster(nodes, kNear), model, Request(2));
  ASSERT_TRUE(two.ok()) << two.status();
  ASSERT_EQ(OnlyPipeline(*two).stages_size(), 2);
  EXPECT_THAT(std::string(two->why(two->why_size() - 1)), HasSubstr("Left out: e"));
}

TEST(RankedPlan, CapacityGrantsWhatTheTightestRankHolds) {
  const PlannerModel model = Model();
  const PlannerRequest request = Request(2, v1::PLAN_GOAL_CAPACITY);
  const PlannerCluster cluster =
      MakeCluster({Node("a", 20, 8 * kGiB), Node("b", 20, 6 * kGiB)}, kNear);
  const auto plan = MakePlan(cluster, model, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const uint64_t pages = OnlyPipeline(*plan).stages(0).kv_pages(0);
  const RankGroups groups(cluster, model,
                          {{.nodes = {0, 1}, .shares = {{0, 32768}, {32768, 65536}}}},
                          AskedKvOf(request.options), request.options.max_batch_tokens());
  EXPECT_TRUE(groups.Fits(0, 0, 8, pages));
  EXPECT_FALSE(groups.Fits(0, 0, 8, pages + 1));
}

TEST(RankedPlan, LayersNameNodesAndTheirShares) {
  const PlannerCluster cluster =
      MakeCluster({Node("a", 20), Node("b", 5), Node("c", 5), Node("d", 5)}, kNear);
  PlannerRequest request = Request(0);
  v1::LoadOptions::PinnedLayers* pin = Pin(&request, 0, 4);
  PinRank("b", 2, pin);
  PinRank("a", 1, pin);
  PinRank("c", 1, pin);
  Pin(&request, 5, 7)->set_node("d");
  const auto plan = MakePlan(cluster, Model(), request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(Names(*plan), ElementsAre("b+a+c:0-4", "d:5-7"));
  EXPECT_THAT(Shares(OnlyPipeline(*plan).stages(0)), ElementsAre(32768, 16384, 16384));
  EXPECT_THAT(Shares(OnlyPipeline(*plan).stages(1)), ElementsAre(65536));
  EXPECT_EQ(OnlyPipeline(*plan).stages(1).ranks(0).weight_bytes(), 0u);
  // A stage of one node is what it is in a plan without ranks.
  PlannerRequest alone = Request(0);
  Pin(&alone, 0, 4)->set_node("a");
  Pin(&alone, 5, 7)->set_node("d");
  const v1::PlanStage& here = OnlyPipeline(*plan).stages(1);
  const auto other = MakePlan(cluster, Model(), alone);
  const v1::PlanStage& there = OnlyPipeline(*other).stages(1);
  EXPECT_EQ(here.weight_bytes(), there.weight_bytes());
  EXPECT_EQ(here.kv_bytes(), there.kv_bytes());
  EXPECT_DOUBLE_EQ(here.predicted_ms(), there.predicted_ms());
}

TEST(RankedPlan, RefusesWhatCannotBe) {
  const PlannerModel model = Model();
  PlannerCluster cluster = MakeCluster({Node("a", 20), Node("b", 10)}, kNear);
  EXPECT_EQ(Reason(MakePlan(cluster, model, Request(9))), "RANKS_INVALID");
  const auto few = MakePlan(cluster, model, Request(3));
  EXPECT_EQ(Reason(few), "RANKS_NEED_NODES");
  EXPECT_THAT(DetailOf(few.status()).limit(), "nodes=2");
  PlannerRequest standby = Request(2);
  standby.options.set_standby(1);
  EXPECT_EQ(Reason(MakePlan(cluster, model, standby)), "BAD_STANDBY");

  PlannerRequest pinned = Request(0);
  v1::LoadOptions::PinnedLayers* pin = Pin(&pinned, 0, 7);
  PinRank("a", 0, pin);
  PinRank("b", 0, pin);
  EXPECT_TRUE(MakePlan(cluster, model, pinned).ok());
  cluster.nodes[1].ranks = false;
  EXPECT_EQ(Reason(MakePlan(cluster, model, pinned)), "RANKS_NOT_SUPPORTED");
  EXPECT_EQ(Reason(MakePlan(cluster, model, Request(2))), "RANKS_NEED_NODES");
  cluster.nodes[1].ranks = true;
  cluster.nodes[1].numerics = "cpu-3";
  EXPECT_EQ(Reason(MakePlan(cluster, model, pinned)), "RANKS_NOT_SUPPORTED");
  cluster.nodes[1].numerics = cluster.nodes[0].numerics;
  pin->mutable_ranks(0)->set_weight(3);
  EXPECT_EQ(Reason(MakePlan(cluster, model, pinned)), "LAYERS_PINNED_WRONG");
  pin->mutable_ranks(1)->set_weight(70000);
  EXPECT_EQ(Reason(MakePlan(cluster, model, pinned)), "LAYERS_PINNED_WRONG");
  pin->mutable_ranks(1)->set_weight(1);
  pin->mutable_ranks(1)->set_node("a");
  EXPECT_EQ(Reason(MakePlan(cluster, model, pinned)), "LAYERS_PINNED_WRONG");
}

// What becomes of a plan when only these nodes are left.
absl::StatusOr<v1::Plan> Without(const v1::Plan& before, const PlannerCluster& left,
                                 const PlannerRequest& request) {
  const PlannerModel model = Model();
  return PlanReplacement({.before = before,
                          .nodes = left.nodes,
                          .layer_bytes = model.layer_bytes,
                          .options = request.options,
                          .plan = [&](const v1::LoadOptions& options) {
                            PlannerRequest asked = request;
                            asked.options = options;
                            return MakePlan(left, model, asked);
                          }});
}

TEST(RankedPlan, AnotherNodeTakesALostRanksPlace) {
  const PlannerRequest request = Request(2);
  const PlannerCluster all = MakeCluster({Node("a", 20), Node("b", 20), Node("c", 19)}, kNear);
  const v1::Plan before = MakePlan(all, Model(), request).value();
  ASSERT_THAT(Names(before), ElementsAre("a+b:0-7"));
  const auto follower =
      Without(before, MakeCluster({Node("a", 20), Node("c", 19)}, kNear), request);
  ASSERT_TRUE(follower.ok()) << follower.status();
  EXPECT_THAT(Names(*follower), ElementsAre("a+c:0-7"));
  const auto first = Without(before, MakeCluster({Node("b", 20), Node("c", 19)}, kNear), request);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(Names(*first), ElementsAre(::testing::AnyOf("c+b:0-7", "b+c:0-7")));
}

TEST(RankedPlan, WhereTooFewNodesAreLeftEachStageHasOneUntilAnotherComes) {
  const PlannerRequest request = Request(2);
  const PlannerCluster all = MakeCluster({Node("a", 20), Node("b", 20)}, kNear);
  const PlannerModel model = Model();
  const v1::Plan before = MakePlan(all, model, request).value();
  const auto alone = Without(before, MakeCluster({Node("b", 20)}, kNear), request);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_THAT(Names(*alone), ElementsAre("b:0-7"));
  // Over the same links, and over some that make ranks slower than one node: they were asked for.
  for (const double latency_ms : {0.02, 5.0}) {
    const PlannerCluster back = MakeCluster({Node("a", 20), Node("b", 20)},
                                            {.latency_ms = latency_ms, .bytes_per_s = 1e10});
    const auto better = [&](uint32_t ranks, const v1::Plan& runs) {
      PlannerRequest asked = Request(ranks);
      return PlanBetter({.before = runs,
                         .nodes = back.nodes,
                         .layer_bytes = model.layer_bytes,
                         .options = asked.options,
                         .plan =
                             [&, asked](const v1::LoadOptions& options) mutable {
                               asked.options = options;
                               return MakePlan(back, model, asked);
                             }})
          .value();
    };
    const std::optional<v1::Plan> returned = better(2, *alone);
    ASSERT_TRUE(returned.has_value()) << latency_ms;
    EXPECT_THAT(Names(*returned), ElementsAre("a+b:0-7"));
    EXPECT_FALSE(better(2, *returned).has_value()) << "it stays there";
    EXPECT_FALSE(better(1, *alone).has_value());
    // Who leaves it open gets them where they win.
    EXPECT_EQ(better(0, *alone).has_value(), latency_ms < 1);
  }
}

TEST(RankedPlan, AStepOfOneRowTakesWhatThePlanPredictsOfAToken) {
  const PlannerCluster cluster = MakeCluster({Node("a", 20), Node("b", 10), Node("c", 5)}, kNear);
  const PlannerModel model = Model();
  for (const uint32_t ranks : {1, 2, 3}) {
    const PlannerRequest request = Request(ranks);
    const v1::Plan plan = MakePlan(cluster, model, request).value();
    EXPECT_NEAR(StepMs(cluster, model, request, plan, 1), 1e3 / plan.predicted_tokens_per_s(), 1e-9)
        << ranks;
  }
}

TEST(RankedPlan, RowsOfAPromptAreGatheredAllOfThem) {
  const PlannerModel model = Model();
  const PlannerRequest request = Request(2);
  const PlannerLink slow = {.latency_ms = 0, .bytes_per_s = 1e8};
  const PlannerCluster cluster = MakeCluster({Node("a", 20), Node("b", 20)}, slow);
  const v1::Plan plan = MakePlan(cluster, model, request).value();
  const auto gathered = [&](uint32_t rows) {
    PlannerCluster at_once = cluster;
    at_once.links[0][1] = at_once.links[1][0] = {.latency_ms = 0, .bytes_per_s = 1e15};
    return StepMs(cluster, model, request, plan, rows) -
           StepMs(at_once, model, request, plan, rows);
  };
  EXPECT_GT(gathered(1), 0);
  EXPECT_NEAR(gathered(512), 512 * gathered(1), 1e-6 * gathered(512));
}

TEST(RankedPlan, SharesThatAreNoPartAreRefused) {
  const auto plan =
      MakePlan(MakeCluster({Node("a", 20), Node("slow", 1e-5)}, kNear), Model(), Request(2));
  EXPECT_EQ(Reason(plan), "RANKS_INVALID");
  EXPECT_EQ(DetailOf(plan.status()).node(), "slow");
}

}  // namespace
}  // namespace strata
