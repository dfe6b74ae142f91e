// Coordinator core and worker cores together, on one thread: what one worker with all layers says
// is the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "common/status.h"
#include "tests/coordinator/engine/runner_stage.h"

namespace strata {
namespace {

constexpr uint32_t kLayers = 4;

ModelSpec Model() { return testing::HashModel(kLayers); }

// The same request alone on one worker with all layers.
SinkRecord Alone(SessionRequest request) {
  EngineConfig config = MakeConfig(1, 64);
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  request.deadline.reset();
  const auto sink = cluster.Submit(std::move(request));
  cluster.RunToEnd();
  EXPECT_TRUE(sink->done.has_value());
  return *sink;
}

// Greedy ids from the token list alone: no engine, runner or page table.
std::vector<uint32_t> Greedy(std::vector<uint32_t> ids, uint32_t tokens) {
  std::vector<uint32_t> answer;
  for (uint32_t i = 0; i < tokens; ++i) {
    const std::vector<float> logits = testing::HashLogits(Model(), ids).back();
    const auto best = std::max_element(logits.begin(), logits.end());
    answer.push_back(static_cast<uint32_t>(best - logits.begin()));
    ids.push_back(answer.back());
  }
  return answer;
}

SessionRequest Sampled(const std::string& id, uint32_t prompt, uint32_t max_tokens, uint64_t seed) {
  SessionRequest request = MakeRequest(id, prompt, max_tokens);
  v1::SamplingParams* sampling = request.params.mutable_sampling();
  sampling->set_temperature(1);
  sampling->set_top_p(0.9f);
  sampling->set_repetition_penalty(1.1f);
  sampling->set_seed(seed);
  request.params.set_logprobs(true);
  request.params.set_top_logprobs(3);
  return request;
}

TEST(EngineOverRunners, GreedyTokensAreThoseOfTheTokenListAlone) {
  const SessionRequest request = MakeRequest("r1", 37, 12);
  const std::vector<uint32_t> expected = Greedy(request.prompt, 12);
  for (uint32_t stages = 1; stages <= kLayers; ++stages) {
    SimCluster cluster(MakeConfig(stages), RunnerStages(Model()));
    cluster.Start();
    const auto sink = cluster.Submit(request);
    cluster.RunToEnd();
    cluster.Settle();
    EXPECT_EQ(sink->tokens, expected) << stages;
    cluster.ExpectEmpty();
    EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 0u);
    EXPECT_EQ(cluster.Snapshot().counters.faults, 0u);
  }
}

TEST(EngineOverRunners, RowsAreThoseOfOneWorker) {
  for (const bool logits : {false, true}) {
    SessionRequest request = Sampled("r1", 45, 9, 5);
    request.return_logits = logits;
    request.prompt_logprobs = !logits;
    request.params.set_prompt_top_logprobs(2);
    const SinkRecord alone = Alone(request);
    EXPECT_EQ(alone.next_row, logits ? 45u + 9 - 1 : 44u);
    for (const uint32_t rows : {1u, 7u, 40u}) {
      EngineConfig config = MakeConfig(3);
      config.max_batch_tokens = rows;
      SimCluster cluster(config, RunnerStages(Model()));
      cluster.Start();
      const auto neighbour = cluster.Submit(Sampled("r2", 20, 20, 9));
      const auto sink = cluster.Submit(request);
      cluster.RunToEnd();
      EXPECT_EQ(sink->tokens, alone.tokens);
      EXPECT_EQ(sink->logits, alone.logits);
      ASSERT_EQ(sink->prompt_logprobs.size(), alone.prompt_logprobs.size());
      for (size_t i = 0; i < alone.prompt_logprobs.size(); ++i) {
        EXPECT_EQ(sink->prompt_logprobs[i].SerializeAsString(),
                  alone.prompt_logprobs[i].SerializeAsString());
      }
      EXPECT_TRUE(neighbour->done.has_value());
    }
  }
}

TEST(EngineOverRunners, ARequestWithNonFiniteRowsFailsAlone) {
  SimCluster cluster(MakeConfig(2), RunnerStages(Model()));
  cluster.Start();
  SessionRequest bad = MakeRequest("bad", 30, 5);
  SessionRequest good = MakeRequest("good", 30, 5);
  std::replace(good.prompt.begin(), good.prompt.end(), 96u, 1u);
  bad.prompt[17] = 96;
  const std::vector<uint32_t> expected = Greedy(good.prompt, 5);
  ASSERT_EQ(std::count(expected.begin(), expected.end(), 96u), 0);
  dynamic_cast<RunnerStage&>(cluster.stage(1)).shard().PoisonToken(96, 2);
  const auto failed = cluster.Submit(bad);
  const auto sink = cluster.Submit(good);
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(ReasonOf(failed->failed.value()), "NON_FINITE");
  EXPECT_EQ(DetailOf(*failed->failed).node(), "node1");
  EXPECT_EQ(sink->tokens, expected);
  EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 0u);
  cluster.ExpectEmpty();
}

TEST(EngineOverRunners, ALapsedLeaseIsRebuiltFromTokens) {
  for (uint32_t stage = 0; stage < 3; ++stage) {
    SimCluster cluster(MakeConfig(3), RunnerStages(Model()));
    cluster.Start();
    cluster.Settle();
    const SessionRequest request = Sampled("r1", 40, 15, 3);
    const auto sink = cluster.Submit(request);
    for (int i = 0; i < 20; ++i) {
      cluster.Deliver(static_cast<uint32_t>(i) % 4);
    }
    dynamic_cast<RunnerStage&>(cluster.stage(stage)).runner().DropAllSequences();
    cluster.BreakLink();
    cluster.RunToEnd();
    cluster.Settle();
    EXPECT_EQ(sink->tokens, Alone(request).tokens);
    EXPECT_EQ(cluster.Snapshot().counters.rebuilds, 1u);
    EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 0u);
    cluster.ExpectEmpty();
  }
}

// Random traffic over real worker cores, with every fault that links and workers can have.
class RandomRun {
 public:
  RandomRun(uint64_t seed, std::map<std::string, std::vector<uint32_t>>* oracle)
      : random_(seed), oracle_(oracle), cluster_(Config(), RunnerStages(Model())) {
    cluster_.record_frames = false;
    cluster_.Start();
  }

  EngineCounters Run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      Event();
      cluster_.ExpectSums();
    }
    cluster_.RunToEnd();
    Reap();
    EXPECT_TRUE(clients_.empty());
    for (int i = 0; i < 100 && cluster_.Snapshot().state != PipelineState::kRunning; ++i) {
      cluster_.Advance(std::chrono::seconds(1));
      cluster_.Settle();
    }
    cluster_.Settle();
    cluster_.ExpectEmpty();
    EXPECT_EQ(cluster_.Snapshot().counters.ledger_mismatches, 0u);
    return cluster_.Snapshot().counters;
  }

  uint64_t completed() const { return completed_; }

 private:
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

  EngineConfig Config() {
    EngineConfig config = MakeConfig(1 + Below(kLayers), 10 + Below(30));
    config.max_batch_tokens = 1 + Below(48);
    config.max_batch_items = 1 + Below(12);
    config.step_timeout = std::chrono::seconds(2);
    config.kv_watermark = Below(3) * 0.05;
    return config;
  }

  void Submit() {
    // Few different requests, so that the oracle is cheap; ids are used again.
    const uint32_t kind = Below(24);
    SessionRequest request =
        Sampled("r" + std::to_string(kind), 1 + kind * 5, 1 + kind % 7 * 8, kind);
    request.guaranteed = Below(8) == 0;
    if (Below(12) == 0) {
      request.deadline = cluster_.now() + milliseconds(1 + Below(3000));
    }
    auto sink = std::make_shared<SinkRecord>();
    if (cluster_.TrySubmit(request, sink).ok()) {
      clients_.emplace_back(request, sink);
    }
  }

  void Break() {
    const uint32_t stage = Below(cluster_.stage_count());
    auto& runner = dynamic_cast<RunnerStage&>(cluster_.stage(stage));
    switch (Below(6)) {
      case 0:
        runner.Restart();
        break;
      case 1:
        cluster_.links[stage].clear();
        break;
      case 2:
        if (!cluster_.links[stage].empty()) {
          cluster_.links[stage].push_back(cluster_.links[stage].front());
        }
        return;
      case 3:
        runner.runner().DropAllSequences();
        break;
      case 4:
        if (cluster_.links[stage].size() > 1) {
          std::swap(cluster_.links[stage][0], cluster_.links[stage][1]);
        }
        return;  // The stage finds the gap by itself.
      default:
        // Once, which nobody notices; or until it is mended.
        runner.shard().FailNextRead();
        runner.shard().FailReads(Below(4) == 0);
        return;
    }
    cluster_.BreakLink();
  }

  void Event() {
    const uint32_t kind = Below(1000);
    if (kind < 50) {
      Submit();
    } else if (kind < 56 && !clients_.empty()) {
      const auto& [request, sink] = clients_[Below(static_cast<uint32_t>(clients_.size()))];
      cluster_.engine().Cancel(request.key, absl::OkStatus(), cluster_.now());
    } else if (kind < 61) {
      Break();
    } else if (kind < 63) {
      cluster_.Advance(milliseconds(Below(1500)));
    } else if (kind < 110) {
      cluster_.AcknowledgeFence();
    } else {
      cluster_.Deliver(Below(cluster_.stage_count() + 1));
    }
    Reap();
  }

  void Reap() {
    std::erase_if(clients_, [this](const auto& client) {
      const auto& [request, sink] = client;
      if (!sink->ended()) {
        return false;
      }
      std::vector<uint32_t>& expected = (*oracle_)[request.request_id];
      if (expected.empty()) {
        expected = Alone(request).tokens;
      }
      EXPECT_LE(sink->tokens.size(), expected.size());
      EXPECT_TRUE(std::equal(sink->tokens.begin(), sink->tokens.end(), expected.begin()));
      if (sink->done.has_value() && sink->done->reason == "length") {
        EXPECT_EQ(sink->tokens.size(), expected.size());
        ++completed_;
      }
      return true;
    });
  }

  std::mt19937_64 random_;
  std::map<std::string, std::vector<uint32_t>>* const oracle_;
  SimCluster cluster_;
  std::vector<std::pair<SessionRequest, std::shared_ptr<SinkRecord>>> clients_;
  uint64_t completed_ = 0;
};

TEST(EngineOverRunners, RandomFaultsNeverGiveAWrongToken) {
  std::map<std::string, std::vector<uint32_t>> oracle;
  EngineCounters sum;
  uint64_t completed = 0;
  for (uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomRun run(seed, &oracle);
    const EngineCounters counters = run.Run(3000);
    completed += run.completed();
    sum.faults += counters.faults;
    sum.rebuilds += counters.rebuilds;
    sum.preemptions += counters.preemptions;
    sum.item_errors += counters.item_errors;
    sum.done += counters.done;
    sum.failed += counters.failed;
  }
  for (const auto& [what, count] :
       std::initializer_list<std::pair<const char*, uint64_t>>{{"completed", completed},
                                                               {"faults", sum.faults},
                                                               {"rebuilds", sum.rebuilds},
                                                               {"preemptions", sum.preemptions},
                                                               {"item_errors", sum.item_errors},
                                                               {"failed", sum.failed}}) {
    EXPECT_GT(count, 20u) << what;
    RecordProperty(what, std::to_string(count));
  }
}

}  // namespace
}  // namespace strata
