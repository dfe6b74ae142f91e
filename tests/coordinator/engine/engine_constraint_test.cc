// Sessions that are held to a constraint, over real shard runners: what the tokens and the sets of
// the token list alone say, whatever happens meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/coordinator/engine/runner_stage.h"
#include "tests/coordinator/engine/scripted_constraint.h"

namespace strata {
namespace {

constexpr uint32_t kLayers = 4;

const ModelSpec& Model() {
  static const ModelSpec model = testing::HashModel(kLayers);
  return model;
}

SessionRequest Held(const std::string& id, uint32_t prompt, uint32_t max_tokens,
                    const ConstraintScript& script) {
  SessionRequest request = MakeRequest(id, prompt, max_tokens);
  request.constraint = std::make_shared<ScriptedConstraint>(script);
  return request;
}

// Greedy ids of the sets from the token list alone: no engine, runner or page table.
std::vector<uint32_t> Expected(const SessionRequest& request, const ConstraintScript& script) {
  std::vector<uint32_t> ids = request.prompt;
  std::vector<uint32_t> answer;
  while (answer.size() < std::min(request.max_tokens, script.tokens)) {
    const std::vector<float> logits = testing::HashLogits(Model(), ids).back();
    const auto next = ScriptedNext(script, answer);
    uint32_t best = script.vocab;
    for (uint32_t id = 0; id < script.vocab; ++id) {
      if (MaskHas(next->bits, id) && (best == script.vocab || logits[id] > logits[best])) {
        best = id;
      }
    }
    answer.push_back(best);
    ids.push_back(best);
  }
  return answer;
}

TEST(EngineConstraint, TokensAreThoseOfTheTokenListOnEveryPartitionAndInEveryChunking) {
  const ConstraintScript script{.salt = 5};
  const SessionRequest first = Held("r1", 37, 20, script);
  const auto expected = Expected(first, script);
  for (uint32_t stages = 1; stages <= kLayers; ++stages) {
    for (const uint32_t rows : {1u, 7u, 40u, 512u}) {
      EngineConfig config = MakeConfig(stages);
      config.max_batch_tokens = rows;
      SimCluster cluster(config, RunnerStages(Model()));
      cluster.Start();
      const auto sink = cluster.Submit(Held("r1", 37, 20, script));
      const auto free = cluster.Submit(MakeRequest("r2", 20, 20));
      cluster.RunToEnd();
      cluster.Settle();
      EXPECT_EQ(sink->tokens, expected) << stages << " stages, " << rows << " rows";
      EXPECT_TRUE(free->done.has_value());
      EXPECT_EQ(cluster.Snapshot().counters.faults, 0u);
      cluster.ExpectEmpty();
    }
  }
}

TEST(EngineConstraint, TheSameTokensInABatchOfSixteen) {
  EngineConfig config = MakeConfig(2, 128);
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (uint32_t i = 0; i < 16; ++i) {
    sinks.push_back(cluster.Submit(Held("r" + std::to_string(i), 5 + i, 12, {.salt = i + 1})));
  }
  cluster.RunToEnd();
  for (uint32_t i = 0; i < 16; ++i) {
    const ConstraintScript script{.salt = i + 1};
    EXPECT_EQ(sinks[i]->tokens, Expected(Held("r" + std::to_string(i), 5 + i, 12, script), script));
  }
  EXPECT_EQ(cluster.Snapshot().counters.faults, 0u);
}

TEST(EngineConstraint, TheSameTokensThoughItGaveItsMemoryUp) {
  const ConstraintScript script{.salt = 3};
  SimCluster cluster(MakeConfig(2, 6), RunnerStages(Model()));
  cluster.Start();
  const auto old = cluster.Submit(Held("old", 30, 50, {.salt = 2}));
  const auto young = cluster.Submit(Held("young", 30, 50, script));
  cluster.RunToEnd();
  EXPECT_GE(cluster.Snapshot().counters.preemptions, 1u);
  EXPECT_EQ(young->tokens, Expected(Held("young", 30, 50, script), script));
  EXPECT_EQ(old->tokens, Expected(Held("old", 30, 50, {.salt = 2}), {.salt = 2}));
}

// At every point of an answer a stage is lost, which had masks and sequences.
TEST(EngineConstraint, TheSameTokensThoughAStageWasLost) {
  const ConstraintScript script{.salt = 9};
  const auto expected = Expected(Held("r1", 20, 10, script), script);
  for (uint32_t lost = 0; lost < 2; ++lost) {
    for (int moves = 1; moves < 36; moves += 2) {
      SimCluster cluster(MakeConfig(2), RunnerStages(Model()));
      cluster.Start();
      cluster.Settle();
      const auto sink = cluster.Submit(Held("r1", 20, 10, script));
      const auto other = cluster.Submit(Held("r2", 11, 10, {.salt = 4}));
      for (int i = 0; i < moves; ++i) {
        cluster.Deliver(static_cast<uint32_t>(i % 3));
      }
      cluster.stage(lost).Restart();
      cluster.BreakLink();
      cluster.RunToEnd();
      EXPECT_EQ(sink->tokens, expected) << "stage " << lost << " after " << moves;
      EXPECT_EQ(other->tokens, Expected(Held("r2", 11, 10, {.salt = 4}), {.salt = 4}));
    }
  }
}

TEST(EngineConstraint, TheSameTokensThoughTheStagesWereLoadedAnew) {
  const ConstraintScript script{.salt = 9};
  SimCluster cluster(MakeConfig(2), RunnerStages(Model()));
  cluster.Start();
  cluster.Settle();
  const auto sink = cluster.Submit(Held("r1", 20, 10, script));
  for (int i = 0; i < 10; ++i) {
    cluster.Deliver(static_cast<uint32_t>(i % 3));
  }
  ASSERT_FALSE(sink->ended());
  cluster.Suspend(40);
  cluster.Resume();
  cluster.RunToEnd();
  EXPECT_EQ(sink->tokens, Expected(Held("r1", 20, 10, script), script));
}

TEST(EngineConstraint, EndsWithStopWhereItIsCompleteAndWithLengthWhereItIsNot) {
  for (const uint32_t tokens : {1u, 5u, 8u, 9u}) {
    const ConstraintScript script{.salt = 3, .tokens = tokens};
    SimCluster cluster(MakeConfig(2), RunnerStages(Model()));
    cluster.Start();
    const auto sink = cluster.Submit(Held("r1", 9, 8, script));
    cluster.RunToEnd();
    ASSERT_TRUE(sink->done.has_value());
    EXPECT_EQ(sink->done->reason, tokens <= 8 ? "stop" : "length");
    EXPECT_EQ(sink->tokens.size(), std::min(tokens, 8u));
  }
}

TEST(EngineConstraint, AStopTokenEndsIt) {
  ConstraintScript script{.salt = 3};
  SessionRequest request = Held("r1", 9, 30, script);
  const auto expected = Expected(request, script);
  request.stop_ids = {expected[4]};
  SimCluster cluster(MakeConfig(2), RunnerStages(Model()));
  cluster.Start();
  const auto sink = cluster.Submit(request);
  cluster.RunToEnd();
  const auto end = std::find(expected.begin(), expected.end(), expected[4]) + 1;
  EXPECT_EQ(sink->tokens, std::vector<uint32_t>(expected.begin(), end));
  EXPECT_EQ(sink->done->reason, "stop");
}

size_t MasksSent(const SimCluster& cluster) {
  size_t count = 0;
  for (const v1::StepFrame& frame : cluster.sent) {
    count += static_cast<size_t>(frame.masks_size());
  }
  return count;
}

TEST(EngineConstraint, MasksThatRecurAreSentOnceInAnEpoch) {
  const ConstraintScript script{.salt = 3, .recur = 4};
  SimCluster cluster(MakeConfig(2), RunnerStages(Model()));
  cluster.Start();
  const auto first = cluster.Submit(Held("r1", 9, 30, script));
  const auto second = cluster.Submit(Held("r2", 9, 30, script));
  cluster.RunToEnd();
  EXPECT_EQ(MasksSent(cluster), 4u);
  cluster.BreakLink();
  const auto third = cluster.Submit(Held("r3", 9, 30, script));
  cluster.RunToEnd();
  EXPECT_EQ(MasksSent(cluster), 8u);
  EXPECT_EQ(third->tokens, Expected(Held("r3", 9, 30, script), script));
  EXPECT_EQ(first->tokens, Expected(Held("r1", 9, 30, script), script));
}

TEST(EngineConstraint, MoreMasksThanThereAreSlots) {
  const ConstraintScript script{.salt = 3, .recur = 300};
  EngineConfig config = MakeConfig(1, 128);
  config.context = 1024;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  const auto sink = cluster.Submit(Held("r1", 9, 700, script));
  cluster.RunToEnd();
  EXPECT_EQ(sink->tokens, Expected(Held("r1", 9, 700, script), script));
  EXPECT_EQ(MasksSent(cluster), 700u);  // Each is gone when it comes again.
  EXPECT_EQ(cluster.Snapshot().counters.replays, 0u);
}

// More sessions than a step may name masks for: none is sampled without.
TEST(EngineConstraint, ManyMasksAtOnceComeWithSeveralSteps) {
  EngineConfig config = MakeConfig(1, 600);
  config.max_batch_items = 512;
  config.max_batch_tokens = 4096;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (uint32_t i = 0; i < 150; ++i) {
    sinks.push_back(cluster.Submit(Held("r" + std::to_string(i), 4, 4, {.salt = i + 1})));
  }
  cluster.RunToEnd();
  for (uint32_t i = 0; i < 150; ++i) {
    const ConstraintScript script{.salt = i + 1};
    EXPECT_EQ(sinks[i]->tokens, Expected(Held("r" + std::to_string(i), 4, 4, script), script));
  }
  for (const v1::StepFrame& frame : cluster.sent) {
    EXPECT_LE(frame.masks_size(), 128);
  }
}

// Who was in a step last is the last to be in the next one.
TEST(EngineConstraint, NobodyWaitsForThoseThatCameBeforeWhereMasksHaveNoRoom) {
  EngineConfig config = MakeConfig(1, 600);
  config.max_batch_items = 512;
  config.max_batch_tokens = 4096;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  for (uint32_t i = 0; i < 150; ++i) {
    cluster.Submit(Held("r" + std::to_string(i), 4, 12, {.salt = i + 1}));
  }
  cluster.RunToEnd();
  std::map<std::string, uint32_t> tokens;
  for (const v1::StepFrame& frame : cluster.sent) {
    for (const v1::StepItem& item : frame.items()) {
      tokens[item.sequence().request_id()] += item.sample() ? 1 : 0;
    }
    if (tokens["r0"] == 10) break;
  }
  for (const auto& [request, count] : tokens) {
    EXPECT_GE(count, 5u) << request;
  }
  EXPECT_EQ(tokens.size(), 150u);
}

TEST(EngineConstraint, OneThatWasMadeForAnotherModelIsRefused) {
  EngineConfig config = MakeConfig(1);
  config.weights_digest = "these";
  SimCluster cluster(config);
  cluster.Start();
  const auto submit = [&](const SessionRequest& request) {
    return ReasonOf(
        cluster.engine().Submit(request, std::make_shared<SinkRecord>(), cluster.now()));
  };
  EXPECT_EQ(submit(Held("r1", 9, 6, {.vocab = 200})), "MODEL_LOADING");
  SessionRequest request = Held("r2", 9, 6, {});
  request.weights_digest = "others";
  EXPECT_EQ(submit(request), "MODEL_LOADING");
  request.weights_digest = "these";
  EXPECT_EQ(submit(request), "");
}

TEST(EngineConstraint, AStageThatLacksAMaskGetsAllOfThemAgain) {
  SimCluster cluster(MakeConfig(1));
  cluster.fake(0).before_item = [tokens = 0](v1::StepItem* item) mutable {
    if (item->has_mask() && ++tokens == 3) {
      item->mutable_error()->set_reason("MASK_NOT_FOUND");
      item->mutable_error()->set_code(static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
    }
  };
  cluster.Start();
  const ConstraintScript any{.one_in = 1, .recur = 2};
  const auto sink = cluster.Submit(Held("r1", 9, 6, any));
  cluster.RunToEnd();
  ASSERT_TRUE(sink->done.has_value());
  EXPECT_EQ(sink->tokens, OracleAnswer(MakeRequest("r1", 9, 6).prompt, 6, 97));
  EXPECT_EQ(cluster.Snapshot().counters.replays, 1u);
  EXPECT_EQ(MasksSent(cluster), 2u);  // The set of every token: once, and once more.
}

// The fake stage knows no masks.
TEST(EngineConstraint, ATokenThatTheMaskBarsIsNoResult) {
  SimCluster cluster(MakeConfig(1));
  cluster.Start();
  const auto sink = cluster.Submit(Held("r1", 9, 6, {.one_in = 1'000'000}));
  cluster.RunToEnd();
  ASSERT_TRUE(sink->failed.has_value());
  EXPECT_TRUE(sink->tokens.empty());
  EXPECT_GE(cluster.Snapshot().counters.faults, 1u);
}

class LateMasks : public ::testing::Test {
 protected:
  LateMasks() : cluster_(MakeConfig(1), RunnerStages(Model())) {
    cluster_.Start();
    cluster_.Settle();
    request_ = MakeRequest("late", 9, 4);
    request_.constraint = late_;
  }

  void Make() {
    late_->Make();
    cluster_.engine().OnConstraint("scope/late", cluster_.now());
    cluster_.Settle();
  }

  const ConstraintScript script_{.salt = 3};
  std::shared_ptr<ScriptedConstraint> late_ =
      std::make_shared<ScriptedConstraint>(script_, /*at_once=*/false);
  SimCluster cluster_;
  SessionRequest request_;
};

TEST_F(LateMasks, AreWaitedForWhileOthersGoOn) {
  const auto sink = cluster_.Submit(request_);
  const auto other = cluster_.Submit(MakeRequest("r2", 9, 30));
  cluster_.Settle();
  cluster_.Advance(milliseconds(2));
  cluster_.Settle();
  EXPECT_EQ(sink->tokens.size(), 1u);
  EXPECT_TRUE(other->done.has_value());
  for (size_t tokens = 2; tokens <= 4; ++tokens) {
    Make();
    cluster_.Advance(milliseconds(2));
    cluster_.Settle();
    EXPECT_EQ(sink->tokens.size(), tokens);
  }
  // Whether it is complete is not known yet.
  EXPECT_FALSE(sink->ended());
  Make();
  ASSERT_TRUE(sink->done.has_value());
  EXPECT_EQ(sink->done->reason, "length");
  EXPECT_EQ(sink->tokens, Expected(MakeRequest("late", 9, 4), script_));
}

// Answers of one step stay together where their masks are nearly there.
TEST_F(LateMasks, HoldAStepBackForAMomentOnly) {
  const auto sink = cluster_.Submit(request_);
  const auto other = cluster_.Submit(MakeRequest("r2", 9, 30));
  cluster_.Settle();
  const size_t tokens = other->tokens.size();
  ASSERT_FALSE(other->ended());
  ASSERT_EQ(sink->tokens.size(), 1u);
  cluster_.Settle();
  EXPECT_EQ(other->tokens.size(), tokens);
  ASSERT_TRUE(cluster_.engine().NextWake().has_value());
  EXPECT_LE(*cluster_.engine().NextWake() - cluster_.now(), milliseconds(1));
  cluster_.Advance(milliseconds(1));
  cluster_.Settle();
  EXPECT_GT(other->tokens.size(), tokens);
}

TEST_F(LateMasks, AProblemEndsItsSessionAlone) {
  const auto sink = cluster_.Submit(request_);
  const auto other = cluster_.Submit(MakeRequest("r2", 9, 30));
  cluster_.Settle();
  late_->Break(Error(absl::StatusCode::kInternal, "MASK_FAILED", "no mask"));
  cluster_.engine().OnConstraint("scope/late", cluster_.now());
  ASSERT_TRUE(sink->failed.has_value());
  EXPECT_EQ(sink->failed->message(), "no mask");
  cluster_.RunToEnd();
  EXPECT_TRUE(other->done.has_value());
  // It is gone.
  cluster_.engine().OnConstraint("scope/late", cluster_.now());
}

}  // namespace
}  // namespace strata
