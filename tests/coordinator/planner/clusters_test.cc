// Made-up clusters: what a plan looks like, and what it says.
#include <cstdio>
#include <string>
#include <vector>

#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/planner/planner_testing.h"

namespace strata {
namespace {

using testing::ExpectValid;
using ::testing::HasSubstr;
using testing::kGiB;
using testing::kMiB;
using testing::MakeCluster;
using testing::MakeModel;
using testing::MakeNode;
using testing::MakeRequest;

// 70 B parameters, two bytes each: 80 layers of 1.6 GiB.
PlannerModel Large() { return MakeModel(80, 8192, 28672, 64, 8, 128256); }
// 8 B.
PlannerModel Medium() { return MakeModel(32, 4096, 14336, 32, 8, 128256); }

// Four Macs on Thunderbolt and two GPU boxes, all on 1 GbE.
PlannerCluster MacsAndGpus() {
  std::vector<PlannerNode> nodes;
  const uint64_t memory[] = {96 * kGiB, 64 * kGiB, 48 * kGiB, 32 * kGiB};
  const double bandwidth[] = {800, 400, 300, 120};
  for (int i = 0; i < 4; ++i) {
    nodes.push_back(MakeNode("mac" + std::to_string(i), memory[i], bandwidth[i], 15000));
  }
  nodes.push_back(MakeNode("gpu0", 24 * kGiB, 1000, 80000));
  nodes.push_back(MakeNode("gpu1", 16 * kGiB, 700, 50000));
  PlannerCluster cluster = MakeCluster(std::move(nodes), {0.3, 1.1e8});
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      cluster.links[i][j] = i == j ? PlannerLink{0, 1e12} : PlannerLink{0.05, 3e9};
    }
  }
  return cluster;
}

// Plans, checks, and prints what it gives.
v1::Plan Planned(const char* what, const PlannerCluster& cluster, const PlannerModel& model,
                 const PlannerRequest& request) {
  const auto plan = MakePlan(cluster, model, request);
  EXPECT_TRUE(plan.ok()) << Describe(plan.status());
  if (!plan.ok()) {
    return {};
  }
  ExpectValid(cluster, model, request, *plan);
  std::printf("%-32s %d stages, %.2f tokens/s, gap %.3f %%\n", what,
              plan->pipelines(0).stages_size(), plan->predicted_tokens_per_s(),
              100 * plan->lower_bound_gap());
  return *plan;
}

std::string Why(const v1::Plan& plan) {
  std::string all;
  for (const std::string& sentence : plan.why()) {
    all += sentence + "\n";
  }
  return all;
}

std::vector<std::string> Nodes(const v1::Plan& plan) {
  std::vector<std::string> names;
  for (const auto& stage : plan.pipelines(0).stages()) {
    names.push_back(stage.ranks(0).node());
  }
  return names;
}

TEST(Clusters, MacsAndGpusServeEachGoal) {
  const PlannerCluster cluster = MacsAndGpus();
  const auto latency = Planned("4 Macs + 2 GPUs, latency", cluster, Large(),
                               MakeRequest(v1::PLAN_GOAL_LATENCY, 16384));
  const auto throughput = Planned("4 Macs + 2 GPUs, throughput", cluster, Large(),
                                  MakeRequest(v1::PLAN_GOAL_THROUGHPUT, 16384));
  const auto capacity = Planned("4 Macs + 2 GPUs, capacity", cluster, Large(),
                                MakeRequest(v1::PLAN_GOAL_CAPACITY, 16384));
  EXPECT_EQ(latency.lower_bound_gap(), 0);
  EXPECT_THAT(Nodes(latency), ::testing::Not(::testing::Contains("mac3")));  // The slow one.
  EXPECT_GT(throughput.predicted_tokens_per_s(), 2 * latency.predicted_tokens_per_s());
  EXPECT_GT(capacity.pipelines(0).kv_tokens(), 100'000u);
  EXPECT_EQ(latency.pipelines(0).kv_tokens(), 16384u);
}

TEST(Clusters, OneSlowNodeIsLeftOutAndSaysWhy) {
  const PlannerCluster cluster =
      MakeCluster({MakeNode("a", 24 * kGiB, 40, 800), MakeNode("slow", 64 * kGiB, 2, 20),
                   MakeNode("b", 24 * kGiB, 38, 800)},
                  {0.2, 1.1e8});
  for (const auto goal : {v1::PLAN_GOAL_LATENCY, v1::PLAN_GOAL_THROUGHPUT}) {
    const auto plan = Planned("one slow node", cluster, Medium(), MakeRequest(goal, 8192));
    EXPECT_THAT(Nodes(plan), ::testing::Not(::testing::Contains("slow")));
    EXPECT_THAT(Why(plan), HasSubstr("Node slow is left out: with it"));
  }
  const auto capacity = Planned("one slow node, capacity", cluster, Medium(),
                                MakeRequest(v1::PLAN_GOAL_CAPACITY, 8192));
  EXPECT_THAT(Nodes(capacity), ::testing::Contains("slow"));
}

TEST(Clusters, OneTinyNodeIsLeftOutAndSaysWhy) {
  const PlannerCluster cluster =
      MakeCluster({MakeNode("a", 12 * kGiB, 40, 800), MakeNode("tiny", 300 * kMiB, 100, 2000),
                   MakeNode("b", 12 * kGiB, 38, 800)},
                  {0.2, 1.1e8});
  const auto plan =
      Planned("one tiny node", cluster, Medium(), MakeRequest(v1::PLAN_GOAL_LATENCY, 8192));
  EXPECT_EQ(plan.pipelines(0).stages_size(), 2);
  EXPECT_THAT(Why(plan), HasSubstr("Node tiny is left out: its 300"));
}

TEST(Clusters, ThirtyTwoNodesOfSomeKinds) {
  std::vector<PlannerNode> nodes;
  for (int i = 0; i < 32; ++i) {
    const int kind = i % 5;
    nodes.push_back(MakeNode("n" + std::to_string(i), (6 + 5 * kind) * kGiB, 30.0 + 40 * kind,
                             900.0 + 700 * kind));
  }
  const PlannerCluster cluster = MakeCluster(std::move(nodes), {0.15, 1.2e8});
  for (const auto goal :
       {v1::PLAN_GOAL_LATENCY, v1::PLAN_GOAL_THROUGHPUT, v1::PLAN_GOAL_CAPACITY}) {
    const auto plan = Planned("32 nodes of 5 kinds", cluster, Large(), MakeRequest(goal, 32768));
    EXPECT_LE(plan.lower_bound_gap(), 0.02);
  }
}

TEST(Clusters, ThirtyTwoNodesThatAllDiffer) {
  std::vector<PlannerNode> nodes;
  for (int i = 0; i < 32; ++i) {
    nodes.push_back(MakeNode("n" + std::to_string(i), 5 * kGiB + (i * 37 % 32) * kGiB / 2,
                             25.0 + (i * 53 % 97), 500.0 + 61 * (i * 29 % 41)));
  }
  PlannerCluster cluster = MakeCluster(std::move(nodes), {0.15, 1.2e8});
  for (size_t i = 0; i <= 32; ++i) {
    for (size_t j = 0; j <= 32; ++j) {
      if (i != j) {
        cluster.links[i][j].latency_ms = 0.1 + 0.01 * static_cast<double>((i * 7 + j * 13) % 20);
      }
    }
  }
  for (const auto goal :
       {v1::PLAN_GOAL_LATENCY, v1::PLAN_GOAL_THROUGHPUT, v1::PLAN_GOAL_CAPACITY}) {
    const auto plan = Planned("32 different nodes", cluster, Large(), MakeRequest(goal, 32768));
    EXPECT_LE(plan.lower_bound_gap(), 0.02);
  }
}

TEST(Clusters, FourteenNodesWithUnlikeLinksAreProven) {
  std::vector<PlannerNode> nodes;
  for (int i = 0; i < 14; ++i) {
    nodes.push_back(MakeNode("n" + std::to_string(i), (10 + i) * kGiB, 30.0 + (i * 53 % 97), 2000));
  }
  PlannerCluster cluster = MakeCluster(std::move(nodes), {1, 1.2e8});
  for (size_t i = 0; i <= 14; ++i) {
    for (size_t j = 0; j <= 14; ++j) {
      cluster.links[i][j].latency_ms = 0.2 + 0.3 * static_cast<double>((i * 7 + j * 13) % 20);
    }
  }
  const auto plan = Planned("14 nodes, unlike links", cluster, Large(),
                            MakeRequest(v1::PLAN_GOAL_LATENCY, 32768));
  EXPECT_EQ(plan.lower_bound_gap(), 0);
}

TEST(Clusters, TheSameInputGivesTheSamePlan) {
  const PlannerCluster cluster = MacsAndGpus();
  const auto request = MakeRequest(v1::PLAN_GOAL_LATENCY, 16384);
  const auto first = MakePlan(cluster, Large(), request);
  const auto second = MakePlan(cluster, Large(), request);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->SerializeAsString(), second->SerializeAsString());
}

TEST(Clusters, ALinkThatIsTooSlowIsNotUsedForThroughput) {
  // Between a and b 16 KiB take 160 ms, by way of c hardly anything.
  PlannerCluster cluster =
      MakeCluster({MakeNode("a", 8 * kGiB, 40, 800), MakeNode("b", 8 * kGiB, 40, 800),
                   MakeNode("c", 8 * kGiB, 40, 800)},
                  {0.2, 1e8});
  cluster.links[0][1] = cluster.links[1][0] = {0.2, 1e5};
  const auto plan =
      Planned("one bad link", cluster, Medium(), MakeRequest(v1::PLAN_GOAL_THROUGHPUT, 4096));
  ASSERT_EQ(plan.pipelines(0).stages_size(), 3);
  EXPECT_EQ(Nodes(plan)[1], "c");
}

}  // namespace
}  // namespace strata
