#include "coordinator/planner/rank_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/plan.h"
#include "coordinator/planner/planner.h"
#include "tests/coordinator/planner/planner_testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kGiB;
using testing::MakeCluster;
using testing::MakeNode;
using ::testing::Not;
using ::testing::StartsWith;

PlannerModel ModelToWeigh() { return testing::MakeModel(8, 4096, 11264, 32, 8, 32000); }

// Leaves ranks open.
PlannerRequest OpenRequest(v1::PlanGoal goal = v1::PLAN_GOAL_LATENCY) {
  PlannerRequest request = testing::MakeRequest(goal, 4096);
  request.options.clear_ranks();
  return request;
}

PlannerRequest WithRanks(uint32_t ranks) {
  PlannerRequest request = OpenRequest();
  request.options.set_ranks(ranks);
  return request;
}

PlannerCluster Alike(const std::vector<std::string>& names,
                     PlannerLink link = {.latency_ms = 0.02, .bytes_per_s = 1e10}) {
  std::vector<PlannerNode> nodes;
  for (const std::string& name : names) {
    nodes.push_back(MakeNode(name, 64 * kGiB, 20, 1e6));
  }
  return MakeCluster(std::move(nodes), link);
}

// "a+b c": nodes of each stage.
std::string NodesOfPlan(const v1::Plan& plan) {
  std::string text;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    text += (text.empty() ? "" : " ") + NodesOf(stage);
  }
  return text;
}

std::string LastWhy(const v1::Plan& plan) { return plan.why(plan.why_size() - 1); }

v1::Plan PlannedOn(const PlannerCluster& cluster, const PlannerRequest& request) {
  auto plan = MakePlan(cluster, ModelToWeigh(), request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.value_or(v1::Plan());
}

TEST(RankComparison, RanksAreTakenUnaskedWhereTheyWin) {
  const v1::Plan plan = PlannedOn(Alike({"a", "b"}), OpenRequest());
  EXPECT_EQ(NodesOfPlan(plan), "a+b");
  EXPECT_THAT(LastWhy(plan), AllOf(StartsWith("With one node a stage (--ranks 1) one token would "),
                                   HasSubstr("So --ranks 2 is taken: 1.2 times"),
                                   HasSubstr("84 % of what is predicted")));
}

TEST(RankComparison, OfSeveralNumbersOfRanksTheFastestIsTaken) {
  EXPECT_EQ(NodesOfPlan(PlannedOn(Alike({"a", "b", "c"}), OpenRequest())), "a+b+c");
  // A third one that is far away.
  PlannerCluster cluster = Alike({"a", "b", "c"});
  for (const size_t near : {0, 1}) {
    cluster.links[near][2] = cluster.links[2][near] = {.latency_ms = 5, .bytes_per_s = 1e10};
  }
  EXPECT_EQ(NodesOfPlan(PlannedOn(cluster, OpenRequest())), "a+b");
}

TEST(RankComparison, OneRankKeepsStagesOfOneNode) {
  const PlannerCluster cluster = Alike({"a", "b"});
  EXPECT_EQ(NodesOfPlan(PlannedOn(cluster, WithRanks(1))), "a");
  PlannerRequest pinned = OpenRequest();
  auto* pin = pinned.options.add_layers();
  pin->set_node("b");
  pin->set_last_layer(7);
  EXPECT_EQ(NodesOfPlan(PlannedOn(cluster, pinned)), "b");
}

TEST(RankComparison, AGainWithinThePredictionsErrorIsNotEnough) {
  bool seen[2] = {};
  for (double latency_ms = 0.02; latency_ms < 3; latency_ms *= 1.1) {
    const PlannerCluster cluster = Alike({"a", "b"}, {latency_ms, 1e10});
    const double one = PlannedOn(cluster, WithRanks(1)).predicted_tokens_per_s();
    const double two = PlannedOn(cluster, WithRanks(2)).predicted_tokens_per_s();
    const v1::Plan plan = PlannedOn(cluster, OpenRequest());
    const bool taken = NodesOfPlan(plan) == "a+b";
    EXPECT_EQ(taken, 0.84 * two >= 1.2 * one) << latency_ms << " ms: " << two / one;
    if (!taken) {
      EXPECT_THAT(LastWhy(plan),
                  HasSubstr("Not taken unasked: less than 1.2 times as many tokens a second"));
    }
    seen[taken] = true;
  }
  EXPECT_TRUE(seen[false] && seen[true]);
}

TEST(RankComparison, NoPromptTakesLonger) {
  // 512 rows of 47 kB a layer: a narrow link delays them more than it does a token.
  const PlannerCluster narrow = Alike({"a", "b"}, {.latency_ms = 0.02, .bytes_per_s = 1e9});
  const v1::Plan plan = PlannedOn(narrow, OpenRequest());
  EXPECT_EQ(NodesOfPlan(plan), "a");
  EXPECT_THAT(LastWhy(plan), AllOf(StartsWith("With --ranks 2 one token would take "),
                                   HasSubstr("Not taken unasked: a prompt would take longer")));
  EXPECT_EQ(NodesOfPlan(PlannedOn(narrow, WithRanks(2))), "a+b") << "who asks gets them";
  bool seen[2] = {};
  for (double bytes_per_s = 1e9; bytes_per_s < 1e11; bytes_per_s *= 1.1) {
    const PlannerCluster cluster = Alike({"a", "b"}, {0.02, bytes_per_s});
    const PlannerModel model = ModelToWeigh();
    const PlannerRequest request = OpenRequest();
    const double one =
        PromptMs(cluster, model, request, PlannedOn(cluster, WithRanks(1)), /*tokens=*/2048);
    const double two =
        PromptMs(cluster, model, request, PlannedOn(cluster, WithRanks(2)), /*tokens=*/2048);
    const bool taken = NodesOfPlan(PlannedOn(cluster, request)) == "a+b";
    EXPECT_EQ(taken, two <= 0.84 * one) << bytes_per_s;
    seen[taken] = true;
  }
  EXPECT_TRUE(seen[false] && seen[true]);
}

TEST(RankComparison, AllStagesWorkOnALongPromptAtOnce) {
  const PlannerModel model = ModelToWeigh();
  PlannerCluster cluster = Alike({"a", "b"});
  PlannerRequest request = WithRanks(1);
  for (const auto& [node, first, last] : {std::tuple("a", 0u, 3u), std::tuple("b", 4u, 7u)}) {
    auto* pin = request.options.add_layers();
    pin->set_node(node);
    pin->set_first_layer(first);
    pin->set_last_layer(last);
  }
  const v1::Plan plan = PlannedOn(cluster, request);
  const uint32_t chunk = request.options.max_batch_tokens();
  const double first = PromptMs(cluster, model, request, plan, chunk);
  EXPECT_EQ(first, StepMs(cluster, model, request, plan, chunk));
  const double each = PromptMs(cluster, model, request, plan, 2 * chunk) - first;
  EXPECT_GT(each, 0.45 * first);
  EXPECT_LT(each, 0.6 * first);
  EXPECT_NEAR(PromptMs(cluster, model, request, plan, 8 * chunk), first + 7 * each, 1e-6 * first);
}

TEST(RankComparison, NodesOfOneMachineShareItsMemory) {
  PlannerCluster cluster = Alike({"a", "b"});
  cluster.nodes[0].machine = cluster.nodes[1].machine = "10.0.0.1";
  const v1::Plan plan = PlannedOn(cluster, OpenRequest());
  EXPECT_EQ(NodesOfPlan(plan), "a");
  EXPECT_THAT(LastWhy(plan), HasSubstr("Not taken unasked: nodes a and b are of one machine"));
  cluster.nodes[1].machine = "10.0.0.2";
  EXPECT_EQ(NodesOfPlan(PlannedOn(cluster, OpenRequest())), "a+b");
}

TEST(RankComparison, WhatRanksCannotDoKeepsStagesOfOneNode) {
  const PlannerCluster cluster = Alike({"a", "b"});
  PlannerRequest standby = OpenRequest();
  standby.options.set_standby(1);
  const v1::Plan kept = PlannedOn(cluster, standby);
  EXPECT_EQ(NodesOfPlan(kept), "a");
  EXPECT_THAT(LastWhy(kept), Not(HasSubstr("--ranks")));

  PlannerCluster old = cluster;
  old.nodes[1].ranks = false;  // A GPU, or of a version that knows no ranks.
  EXPECT_EQ(NodesOfPlan(PlannedOn(old, OpenRequest())), "a");

  PlannerCluster other = cluster;
  other.nodes[1].numerics = "cpu-3";
  EXPECT_EQ(NodesOfPlan(PlannedOn(other, OpenRequest())), "a");

  PlannerCluster small = cluster;
  small.nodes[1].free_bytes = kGiB;
  EXPECT_EQ(NodesOfPlan(PlannedOn(small, OpenRequest())), "a");

  PlannerRequest named = OpenRequest();
  named.options.add_nodes("b");
  EXPECT_EQ(NodesOfPlan(PlannedOn(cluster, named)), "b");
}

TEST(RankComparison, NodesOfAnotherClassDoNotWinOverThoseOfThePlan) {
  // The fast node takes no ranks; the others compute otherwise than it.
  PlannerCluster cluster = Alike({"a", "b", "mac"});
  cluster.nodes[2].ranks = false;
  cluster.nodes[2].numerics = "mlx-1";
  cluster.nodes[2].read_bytes_per_s = 21e9;
  const v1::Plan plan = PlannedOn(cluster, OpenRequest());
  EXPECT_EQ(NodesOfPlan(plan), "mac");
  EXPECT_THAT(LastWhy(plan), HasSubstr("Not taken unasked: they compute in the class cpu-2/"));
}

TEST(RankComparison, StagesThatWorkAtOnceAreAsGoodForThroughputAndCapacity) {
  const PlannerCluster cluster = Alike({"a", "b"});
  EXPECT_EQ(NodesOfPlan(PlannedOn(cluster, OpenRequest(v1::PLAN_GOAL_THROUGHPUT))), "a b");
  const v1::Plan most = PlannedOn(cluster, OpenRequest(v1::PLAN_GOAL_CAPACITY));
  EXPECT_FALSE(HasSharedStage(most));
  EXPECT_THAT(LastWhy(most), HasSubstr("Not taken unasked: the goal is capacity"));
}

TEST(RankComparison, SaysWhatTheOtherWayWouldGiveWhereRanksAreAskedFor) {
  const PlannerModel model = ModelToWeigh();
  PlannerCluster cluster = Alike({"a", "b", "c"});
  EXPECT_THAT(CompareRanks(cluster, model, WithRanks(1), PlannedOn(cluster, WithRanks(1))),
              StartsWith("With --ranks 3 one token would take "));
  const v1::Plan ranks = PlannedOn(cluster, WithRanks(2));
  EXPECT_THAT(CompareRanks(cluster, model, WithRanks(2), ranks),
              StartsWith("With one node a stage one token would take "));
  EXPECT_EQ(CompareRanks(cluster, model, OpenRequest(), ranks), "") << "the plan says it already";
  PlannerRequest pinned = OpenRequest();
  auto* pin = pinned.options.add_layers();
  pin->set_node("a");
  pin->set_last_layer(7);
  EXPECT_EQ(CompareRanks(cluster, model, pinned, PlannedOn(cluster, pinned)), "");
  cluster.nodes[0].ranks = cluster.nodes[1].ranks = false;
  EXPECT_EQ(CompareRanks(cluster, model, WithRanks(1), PlannedOn(cluster, WithRanks(1))), "");
}

TEST(RankComparison, OfManyNodesNothingIsComparedOrTakenUnasked) {
  std::vector<std::string> names;
  for (int i = 0; i < 17; ++i) {
    names.push_back("n" + std::to_string(i));
  }
  const v1::Plan plan = PlannedOn(Alike(names), OpenRequest());
  EXPECT_FALSE(HasSharedStage(plan));
  EXPECT_THAT(LastWhy(plan), Not(HasSubstr("--ranks")));
  names.pop_back();
  EXPECT_EQ(OnlyPipeline(PlannedOn(Alike(names), OpenRequest())).stages(0).ranks_size(), 8);
}

}  // namespace
}  // namespace strata
