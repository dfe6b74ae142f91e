#include "coordinator/planner/draft_prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/coordinator/planner/planner_testing.h"

namespace strata {
namespace {

using ::testing::IsEmpty;
using testing::kGiB;
using testing::MakeCluster;
using testing::MakeModel;
using testing::MakeNode;
using testing::MakeRequest;
using ::testing::SizeIs;

// At most so many steps in flight.
DraftRules Rules(uint32_t most_steps) {
  return {.most_drafts = 15,
          .most_steps = most_steps,
          .least_gain = 1.03,
          .least_chance = 0.02,
          .least_ahead = 0.3};
}

// One stage: four rows for the time of one, 10 ms, and 2.5 ms for each more.
PlannedStep OneStage(uint32_t rows) {
  const double ms = 10 + 2.5 * (std::max(rows, 4u) - 4);
  return {ms, ms};
}

// 1 + 1/2 + 1/4 + 1/8 tokens in 10 ms; a fifth row would add a sixteenth for a quarter of the time.
TEST(PredictDrafts, RowsThatCostNothingAreTakenAndDearerOnesAreNot) {
  const DraftPrediction half = PredictDrafts(0.5, Rules(1), OneStage);
  EXPECT_EQ(half.drafts, 3u);
  EXPECT_EQ(half.steps, 1u);
  EXPECT_NEAR(half.tokens_per_s, 187.5, 1e-9);
  EXPECT_NEAR(half.times, 1.875, 1e-9);
}

// 1 + 0.9 + ... + 0.9^n tokens in 10 + 2.5 (n - 3) ms: 343.9 /s for n = 3, 327.6 for 4, 312.4
// for 5.
TEST(PredictDrafts, TheBestNumberOfRowsIsTaken) {
  const DraftPrediction most = PredictDrafts(0.9, Rules(1), OneStage);
  EXPECT_EQ(most.drafts, 3u);
  EXPECT_NEAR(most.tokens_per_s, 343.9, 1e-9);
  // Where all rows cost the same, as many as are likely enough: 0.5^5 is 3 %, 0.5^6 1.6 %.
  const auto free = [](uint32_t) { return PlannedStep{10, 10}; };
  EXPECT_EQ(PredictDrafts(0.5, Rules(1), free).drafts, 5u);
  EXPECT_NEAR(PredictDrafts(0.5, Rules(1), free).times, 63.0 / 32, 1e-9);
  EXPECT_EQ(PredictDrafts(0.99, Rules(1), free).drafts, 15u);
}

TEST(PredictDrafts, WhereRowsCostWhatTheyBringThereAreNone) {
  const auto dear = [](uint32_t rows) { return PlannedStep{10.0 * rows, 10.0 * rows}; };
  for (const double right : {0.0, 0.5, 0.99}) {
    const DraftPrediction none = PredictDrafts(right, Rules(1), dear);
    EXPECT_EQ(none.drafts, 0u);
    EXPECT_NEAR(none.tokens_per_s, 100, 1e-9);
    EXPECT_NEAR(none.times, 1, 1e-9);
  }
  // Two tokens in 100 would come by the second row, which takes 3 in 100 of the time.
  EXPECT_EQ(PredictDrafts(0.02, Rules(1),
                          [](uint32_t rows) {
                            return PlannedStep{97 + 3.0 * rows, 0};
                          })
                .drafts,
            0u);
}

// Two stages of 10 ms a row. Without drafts a token takes 20 ms. A step ahead begins with the
// guessed token, so that one comes every 10 ms for as long as guesses are right: of 4 in 5, that is
// five steps and five tokens, the first after 20 ms: 5 in 60 ms.
TEST(PredictDrafts, StepsAheadFillTheStages) {
  const auto dear = [](uint32_t rows) { return PlannedStep{20.0 * rows, 10.0 * rows}; };
  const DraftPrediction ahead = PredictDrafts(0.8, Rules(2), dear);
  EXPECT_EQ(ahead.drafts, 0u);
  EXPECT_EQ(ahead.steps, 2u);
  EXPECT_NEAR(ahead.tokens_per_s, 5 / 0.060, 1e-9);
  EXPECT_NEAR(ahead.times, 5.0 / 3, 1e-9);
  // With 1 ms on each of three hops, room is made every (20 + 3) / 2 ms, which is slower: 5 in
  // 23 + 4 * 11.5 ms.
  const auto far = [](uint32_t rows) { return PlannedStep{20.0 * rows + 3, 10.0 * rows}; };
  EXPECT_NEAR(PredictDrafts(0.8, Rules(2), far).tokens_per_s, 5 / 0.069, 1e-9);
}

// A step of 1 + 1 tokens, both guesses of which are right in 0.64 of cases: 25/9 steps with 5
// tokens, the first after 40 ms and the others 20 ms apart.
TEST(PredictDrafts, StepsAheadHaveDraftsToo) {
  const auto times = [](uint32_t rows) {
    const double ms = rows <= 2 ? 20 : 20.0 * rows;
    return PlannedStep{2 * ms, ms};
  };
  const DraftPrediction both = PredictDrafts(0.8, Rules(2), times);
  EXPECT_EQ(both.drafts, 1u);
  EXPECT_EQ(both.steps, 2u);
  EXPECT_NEAR(both.tokens_per_s, 5 / (0.040 + (25.0 / 9 - 1) * 0.020), 1e-9);
}

TEST(PredictDrafts, OnlyStepsThatAreLikelyToCountAreSentAhead) {
  const auto dear = [](uint32_t rows) { return PlannedStep{100.0 * rows, 10.0 * rows}; };
  const auto steps = [&](double right, uint32_t most) {
    return PredictDrafts(right, Rules(most), dear).steps;
  };
  EXPECT_EQ(steps(0.29, 9), 1u);
  EXPECT_EQ(steps(0.31, 9), 2u);
  EXPECT_EQ(steps(0.6, 9), 3u);  // 0.6^2 is 0.36, 0.6^3 0.216.
  EXPECT_EQ(steps(0.99, 4), 4u);
  EXPECT_EQ(steps(0.99, 3), 3u);
  EXPECT_EQ(steps(0.99, 1), 1u);
}

TEST(PredictDrafts, MoreRightGuessesAreNeverPredictedLess) {
  for (const uint32_t stages : {1u, 2u, 4u}) {
    double before = 0;
    for (double right = 0; right < 1; right += 1.0 / 64) {
      const DraftPrediction prediction = PredictDrafts(right, Rules(stages), [&](uint32_t rows) {
        const double ms = 4 + std::max(0.0, 0.5 * (rows - 6.0));
        return PlannedStep{ms * stages + 0.2 * (stages + 1), ms};
      });
      EXPECT_GE(prediction.times, 1 - 1e-9) << right;
      EXPECT_GE(prediction.tokens_per_s, before * 0.9)
          << right;  // Another choice of drafts is a leap.
      before = prediction.tokens_per_s;
    }
  }
}

// ---- Of plans.

// Ten equal layers; and a node that reads them in 25 ms, and computes so fast that five rows take
// no longer.
class PlannedDraftsTest : public ::testing::Test {
 protected:
  PlannedDraftsTest() {
    for (const uint64_t bytes : model_.layer_bytes) weight_bytes_ += static_cast<double>(bytes);
    for (const double flops : model_.layer_flops) flops_ += flops;
    weight_bytes_ += static_cast<double>(model_.head_bytes);
    flops_ += model_.head_flops;
  }

  PlannerNode Node(const std::string& name, double free_rows) const {
    const double ms = 25;
    return MakeNode(name, 4 * kGiB, weight_bytes_ / ms / 1e6, free_rows * flops_ / ms / 1e6);
  }

  std::vector<DraftPrediction> Predict(const PlannerCluster& cluster, bool pinned = false) {
    PlannerRequest request = MakeRequest(v1::PLAN_GOAL_LATENCY, 64);
    request.options.set_context(32);  // Attention is nothing beside the weights.
    if (pinned) {
      for (const uint32_t first : {0u, 5u}) {
        auto* pin = request.options.add_layers();
        pin->set_node(first == 0 ? "a" : "b");
        pin->set_first_layer(first);
        pin->set_last_layer(first + 4);
      }
    }
    const auto plan = MakePlan(cluster, model_, request);
    EXPECT_TRUE(plan.ok()) << Describe(plan.status());
    predicted_ms_ = 0;
    for (const v1::PlanStage& stage : plan->pipelines(0).stages()) {
      predicted_ms_ += stage.predicted_ms();
    }
    return PredictDrafts(cluster, model_, request.options, *plan, Rules(4));
  }

  PlannerModel model_ = MakeModel(10, 1024, 2816, 16, 4, 8000);
  double weight_bytes_ = 0;
  double flops_ = 0;
  double predicted_ms_ = 0;  // Of a token, by the newest plan.
};

TEST_F(PlannedDraftsTest, RowsAreFreeUpToWhatTheArithmeticTakes) {
  const auto predictions = Predict(MakeCluster({Node("a", 5)}, {0.001, 1e11}));
  ASSERT_THAT(predictions, SizeIs(std::size(kPredictedRight)));
  for (const DraftPrediction& prediction : predictions) {
    EXPECT_EQ(prediction.drafts, 4u);
    EXPECT_EQ(prediction.steps, 1u);
    const double tokens =
        (1 - std::pow(prediction.right, prediction.drafts + 1)) / (1 - prediction.right);
    EXPECT_NEAR(prediction.times, tokens, 0.02 * tokens);  // Attention takes a little.
    EXPECT_NEAR(prediction.tokens_per_s, prediction.times * 1e3 / predicted_ms_,
                1e-6 * prediction.tokens_per_s);
  }
}

TEST_F(PlannedDraftsTest, WhereARowTakesAsLongAsTheWeightsNothingIsWon) {
  for (const DraftPrediction& prediction : Predict(MakeCluster({Node("a", 0.5)}, {0.001, 1e11}))) {
    EXPECT_EQ(prediction.drafts, 0u);
    EXPECT_NEAR(prediction.times, 1, 1e-9);
  }
}

TEST_F(PlannedDraftsTest, OverTwoStagesAStepMoreIsUnderWayAndNotBehindWindows) {
  const PlannerCluster cluster = MakeCluster({Node("a", 0.5), Node("b", 0.5)}, {0.001, 1e11});
  const auto ahead = Predict(cluster, /*pinned=*/true);
  ASSERT_THAT(ahead, SizeIs(std::size(kPredictedRight)));
  for (const DraftPrediction& prediction : ahead) {
    EXPECT_EQ(prediction.steps, 2u);
    // n steps of one token, all behind the first after half of the time: the stages are not quite
    // equal, since one has the head.
    const double steps = 1 / (1 - prediction.right);
    EXPECT_NEAR(prediction.times, steps / (1 + (steps - 1) / 2), 0.1);
  }
  for (KvGroupSpec& group : model_.spec.kv_groups) {
    group.kind = KvKind::kWindow;
    group.window = 64;
  }
  for (const DraftPrediction& prediction : Predict(cluster, /*pinned=*/true)) {
    EXPECT_EQ(prediction.steps, 1u);
    EXPECT_NEAR(prediction.times, 1, 1e-9);
  }
}

// Two of eight experts compute a row: the first of them reads a quarter of all, and each more
// leaves three quarters of what was left.
TEST_F(PlannedDraftsTest, RowsOfAMixtureReadExpertsOfTheirOwn) {
  const double plain = Predict(MakeCluster({Node("a", 50)}, {0.001, 1e11})).back().times;
  for (uint32_t l = 0; l < 10; ++l) {
    model_.spec.layers[l].mlp.experts = 8;
    model_.spec.layers[l].mlp.router.used = 2;
    model_.layer_read_bytes.push_back(model_.layer_bytes[l] / 4);
  }
  const auto predictions = Predict(MakeCluster({Node("a", 50)}, {0.001, 1e11}));
  ASSERT_THAT(predictions, SizeIs(std::size(kPredictedRight)));
  EXPECT_LT(predictions.back().times, 0.8 * plain);
  EXPECT_GE(predictions.back().times, 1);
}

TEST_F(PlannedDraftsTest, NothingIsPredictedForNodesThatAreNotThere) {
  PlannerRequest request = MakeRequest(v1::PLAN_GOAL_LATENCY, 64);
  const auto plan = MakePlan(MakeCluster({Node("a", 5)}, {0.1, 1e9}), model_, request);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(PredictDrafts(MakeCluster({Node("b", 5)}, {0.1, 1e9}), model_, request.options, *plan,
                            Rules(4)),
              IsEmpty());
  EXPECT_THAT(
      PredictDrafts(MakeCluster({Node("a", 5)}, {0.1, 1e9}), model_, request.options, {}, Rules(4)),
      IsEmpty());
}

}  // namespace
}  // namespace strata
