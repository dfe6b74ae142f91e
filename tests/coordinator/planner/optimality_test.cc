// Plans against all plans, and against bounds.
#include <algorithm>
#include <random>

#include "common/status.h"
#include "gtest/gtest.h"
#include "tests/coordinator/planner/planner_testing.h"

namespace strata {
namespace {

using testing::BruteForce;
using testing::ExpectValid;
using testing::MakeRandomCase;
using testing::MeasureOf;
using testing::RandomCase;

constexpr v1::PlanGoal kGoals[] = {v1::PLAN_GOAL_LATENCY, v1::PLAN_GOAL_THROUGHPUT,
                                   v1::PLAN_GOAL_CAPACITY};

// What a planner must not do better or worse than trying everything.
void CompareWithBruteForce(const RandomCase& c, int* fitting) {
  const auto best = BruteForce(c.cluster, c.model, c.request);
  const auto plan = MakePlan(c.cluster, c.model, c.request);
  ASSERT_EQ(plan.ok(), best.has_value()) << Describe(plan.status());
  if (!best) {
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
    return;
  }
  ++*fitting;
  ExpectValid(c.cluster, c.model, c.request, *plan);
  const double measure = MeasureOf(c.cluster, c.model, c.request, *plan);
  EXPECT_NEAR(measure / *best, 1, 1e-9) << plan->DebugString();
  EXPECT_LT(plan->lower_bound_gap(), 1e-9);
}

TEST(Optimality, EqualsBruteForceWithEqualLayers) {
  std::mt19937_64 random(1);
  int fitting = 0;
  for (int i = 0; i < 900; ++i) {
    const auto nodes = static_cast<uint32_t>(1 + random() % 4);
    const auto layers = static_cast<uint32_t>(1 + random() % 8);
    CompareWithBruteForce(MakeRandomCase(&random, nodes, layers, true, kGoals[i % 3]), &fitting);
  }
  EXPECT_GT(fitting, 450);
}

TEST(Optimality, EqualsBruteForceWithUnequalLayers) {
  std::mt19937_64 random(2);
  int fitting = 0;
  for (int i = 0; i < 900; ++i) {
    const auto nodes = static_cast<uint32_t>(1 + random() % 4);
    const auto layers = static_cast<uint32_t>(1 + random() % 8);
    CompareWithBruteForce(MakeRandomCase(&random, nodes, layers, false, kGoals[i % 3]), &fitting);
  }
  EXPECT_GT(fitting, 300);
}

TEST(Optimality, ManyNodesAreWithinTwoPercentOfTheProvenOptimumOfFewer) {
  // Fourteen nodes are searched exhaustively; a fifteenth that helps no one turns the proof off.
  std::mt19937_64 random(3);
  for (int i = 0; i < 6; ++i) {
    RandomCase c = MakeRandomCase(&random, 14, 24, true, v1::PLAN_GOAL_LATENCY);
    const auto proven = MakePlan(c.cluster, c.model, c.request);
    ASSERT_TRUE(proven.ok());
    c.cluster.nodes.push_back(
        testing::MakeNode("snail", c.cluster.nodes[0].free_bytes + testing::kGiB, 0.001, 0.001));
    for (size_t row = 0; row < 15; ++row) {
      c.cluster.links[row].insert(c.cluster.links[row].begin() + 14, PlannerLink{50, 1e6});
    }
    c.cluster.links.insert(c.cluster.links.begin() + 14,
                           std::vector<PlannerLink>(16, PlannerLink{50, 1e6}));
    const auto searched = MakePlan(c.cluster, c.model, c.request);
    ASSERT_TRUE(searched.ok());
    ExpectValid(c.cluster, c.model, c.request, *searched);
    EXPECT_LE(MeasureOf(c.cluster, c.model, c.request, *searched),
              1.02 * 1e3 / proven->predicted_tokens_per_s());
    EXPECT_GE(MeasureOf(c.cluster, c.model, c.request, *searched) * (1 + 1e-9),
              1e3 / proven->predicted_tokens_per_s());
  }
}

TEST(Optimality, TwoThousandRandomClustersAreNeverOverfilled) {
  std::mt19937_64 random(4);
  int fitting = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto nodes = static_cast<uint32_t>(1 + random() % (i % 20 == 0 ? 24 : 7));
    const auto layers = static_cast<uint32_t>(1 + random() % 40);
    const RandomCase c = MakeRandomCase(&random, nodes, layers, random() % 4 != 0, kGoals[i % 3]);
    const auto plan = MakePlan(c.cluster, c.model, c.request);
    if (plan.ok()) {
      ++fitting;
      ExpectValid(c.cluster, c.model, c.request, *plan);
    } else {
      EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(ReasonOf(plan.status()), "MODEL_DOES_NOT_FIT");
    }
    if (::testing::Test::HasFailure()) {
      FAIL() << "cluster " << i;
    }
  }
  EXPECT_GT(fitting, 1000);
}

}  // namespace
}  // namespace strata
