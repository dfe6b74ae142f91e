// Coordinator core and worker cores together, on one thread: what one worker with all layers says
// is the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "common/status.h"
#include "tests/coordinator/engine/runner_stage.h"
#include "tests/coordinator/engine/scripted_drafter.h"

namespace strata {
namespace {

constexpr uint32_t kLayers = 4;

ModelSpec Model() { return testing::HashModel(kLayers); }
// Layers that see all keys and layers with a window, in turn; or every layer with one of two.
ModelSpec WindowModel() {
  return testing::HashModel(kLayers, {{KvKind::kFull, 0}, {KvKind::kWindow, 20}});
}
ModelSpec AllWindowsModel() {
  return testing::HashModel(kLayers, {{KvKind::kWindow, 33}, {KvKind::kWindow, 1}});
}

// `pages` of each group that a stage's layers use.
EngineConfig ConfigFor(const ModelSpec& model, uint32_t stages, uint64_t pages) {
  EngineConfig config = MakeConfig(stages, pages);
  config.kv_groups = model.kv_groups;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    std::vector<uint64_t>& granted = config.stages[stage].kv_pages;
    granted.assign(model.kv_groups.size(), 0);
    for (uint32_t l = kLayers * stage / stages; l < kLayers * (stage + 1) / stages; ++l) {
      granted[model.layers[l].attention.kv_group] = pages;
    }
  }
  return config;
}

// The same request alone on one worker with all layers.
SinkRecord Alone(SessionRequest request, const ModelSpec& model = Model()) {
  EngineConfig config = ConfigFor(model, 1, 64);
  SimCluster cluster(config, RunnerStages(model));
  cluster.Start();
  request.deadline.reset();
  const auto sink = cluster.Submit(std::move(request));
  cluster.RunToEnd();
  EXPECT_TRUE(sink->done.has_value());
  return *sink;
}

// Greedy ids from the token list alone: no engine, runner or page table.
std::vector<uint32_t> Greedy(std::vector<uint32_t> ids, uint32_t tokens,
                             const ModelSpec& model = Model()) {
  std::vector<uint32_t> answer;
  for (uint32_t i = 0; i < tokens; ++i) {
    const std::vector<float> logits = testing::HashLogits(model, ids).back();
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

SessionRequest Digested(const std::string& id, uint32_t prompt) {
  SessionRequest request = MakeRequest(id, prompt, 1);
  request.digest_layers = true;
  return request;
}

EngineConfig DigestConfig(uint32_t stages) {
  EngineConfig config = MakeConfig(stages);
  config.layers = kLayers;
  return config;
}

TEST(EngineOverRunners, DigestsOfLayersAreTheSameOnEveryPartition) {
  std::vector<std::vector<uint64_t>> first;
  for (uint32_t stages = 1; stages <= kLayers; ++stages) {
    SimCluster cluster(DigestConfig(stages), RunnerStages(Model()));
    cluster.Start();
    const auto neighbour = cluster.Submit(Sampled("r2", 20, 20, 9));
    const auto sink = cluster.Submit(Digested("check", 24));
    cluster.RunToEnd();
    cluster.Settle();
    ASSERT_EQ(sink->layer_digests.size(), kLayers + 1);
    for (const std::vector<uint64_t>& layer : sink->layer_digests) {
      EXPECT_EQ(layer.size(), 24u);
    }
    if (stages == 1) first = sink->layer_digests;
    EXPECT_EQ(sink->layer_digests, first) << stages;
    EXPECT_EQ(sink->tokens, Greedy(Digested("check", 24).prompt, 1));
    EXPECT_TRUE(neighbour->layer_digests.empty());
    cluster.ExpectEmpty();
    EXPECT_EQ(cluster.Snapshot().counters.faults, 0u);
  }
}

TEST(EngineOverRunners, WhatIsDigestedIsComputedInSeveralPartsAndSingleRows) {
  for (const uint32_t tokens : {1u, 2u, 5u, 6u, 24u, 100u}) {
    SimCluster cluster(DigestConfig(2), RunnerStages(Model()));
    cluster.Start();
    const auto sink = cluster.Submit(Digested("check", tokens));
    cluster.RunToEnd();
    std::vector<int> parts;
    for (const v1::StepFrame& frame : cluster.sent) {
      for (const v1::StepItem& item : frame.items()) {
        EXPECT_TRUE(item.digest_layers());
        parts.push_back(item.token_ids_size());
      }
    }
    EXPECT_EQ(sink->layer_digests.at(kLayers).size(), tokens);
    const size_t singles = std::min(4u, tokens);
    ASSERT_GE(parts.size(), tokens >= 6 ? singles + 2 : singles);
    for (size_t i = parts.size() - singles; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i], 1) << tokens;
    }
  }
}

TEST(EngineOverRunners, DigestsComeOnceThoughTheSequenceIsReplayed) {
  SimCluster whole(DigestConfig(2), RunnerStages(Model()));
  whole.Start();
  const auto expected = whole.Submit(Digested("check", 24));
  whole.RunToEnd();

  SimCluster cluster(DigestConfig(2), RunnerStages(Model()));
  cluster.Start();
  cluster.Settle();
  const auto sink = cluster.Submit(Digested("check", 24));
  cluster.Deliver(0), cluster.Deliver(1), cluster.Deliver(2);
  ASSERT_EQ(sink->layer_digests.size(), kLayers + 1);
  cluster.stage(1).Restart();
  cluster.BreakLink();
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(sink->layer_digests, expected->layer_digests);
  cluster.ExpectEmpty();
}

TEST(EngineOverRunners, WhatIsDigestedNeitherUsesCachedPrefixesNorLeavesAny) {
  EngineConfig config = DigestConfig(2);
  config.prefix_cache = true;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  const auto before = cluster.Submit(MakeRequest("r1", 64, 4));
  cluster.RunToEnd();
  cluster.Settle();
  const uint32_t cached = cluster.Snapshot().cached_sequences;
  EXPECT_EQ(cached, 1u);
  for (const char* id : {"c1", "c2"}) {
    SessionRequest request = Digested(id, 64);
    request.prompt = MakeRequest("r1", 64, 4).prompt;
    const auto sink = cluster.Submit(request);
    cluster.RunToEnd();
    cluster.Settle();
    ASSERT_EQ(sink->layer_digests.size(), kLayers + 1);
    EXPECT_EQ(sink->layer_digests[0].size(), 64u);
    EXPECT_EQ(sink->done->cached_tokens, 0u);
  }
  EXPECT_EQ(cluster.Snapshot().cached_sequences, cached);
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

// LongRoPE: what a request may come to need decides at its start, on every stage, for good.
TEST(EngineOverRunners, TheRotaryVariantIsPinnedAtAdmission) {
  ModelSpec model = Model();
  for (LayerSpec& layer : model.layers) {
    layer.attention.rope = {.rotary_dim = 2,
                            .scaling = RopeScaling::kLongRope,
                            .original_context = 64,
                            .short_factors = {1},
                            .long_factors = {2}};
  }
  struct Case {
    uint32_t prompt;
    uint32_t max_tokens;  // 0: not asked for.
    uint32_t variant;
    uint32_t tokens;
  };
  for (const Case& one : std::initializer_list<Case>{{40, 24, 0, 24},
                                                     {40, 25, 1, 25},
                                                     {40, 0, 0, 24},
                                                     {63, 0, 0, 1},
                                                     {64, 0, 1, 30},
                                                     {100, 3, 1, 3}}) {
    EngineConfig config = MakeConfig(2);
    config.long_rotary_above = LongRotaryAbove(model);
    SimCluster cluster(config, RunnerStages(model));
    cluster.Start();
    SessionRequest request = MakeRequest("r1", one.prompt, one.max_tokens);
    request.default_max_tokens = 30;
    const auto sink = cluster.Submit(request);
    cluster.RunToEnd();
    cluster.Settle();
    EXPECT_EQ(sink->tokens, Greedy(request.prompt, one.tokens)) << one.prompt;
    EXPECT_EQ(cluster.Snapshot().counters.item_errors, 0u);
    for (const v1::StepFrame& frame : cluster.sent) {
      for (const v1::StepItem& item : frame.items()) {
        if (item.position() == 0) {
          EXPECT_EQ(item.params().rotary_variant(), one.variant) << one.prompt;
        }
      }
    }
  }
}

// The pool of a window group is as small as the planner makes it.
TEST(EngineOverRunners, WindowedLayersNeedOnlyTheirWindowsPages) {
  for (const ModelSpec& model : {WindowModel(), AllWindowsModel()}) {
    for (uint32_t stages = 1; stages <= kLayers; ++stages) {
      constexpr uint32_t kSessions = 3;
      EngineConfig config = ConfigFor(model, stages, 3 * 20);
      config.max_batch_tokens = 10;
      for (EngineStage& stage : config.stages) {
        for (size_t group = 0; group < model.kv_groups.size(); ++group) {
          const uint64_t most =
              kSessions * MostKvPages(model.kv_groups[group], 300,
                                      KvRowsInFlight(stages, config.max_batch_tokens));
          stage.kv_pages[group] = std::min(stage.kv_pages[group], most);
        }
      }
      SimCluster cluster(config, RunnerStages(model));
      cluster.Start();
      std::vector<std::pair<SessionRequest, std::shared_ptr<SinkRecord>>> clients;
      for (uint32_t i = 0; i < kSessions; ++i) {
        const SessionRequest request = MakeRequest("r" + std::to_string(i), 200 + i * 30, 25);
        clients.emplace_back(request, cluster.Submit(request));
      }
      cluster.RunToEnd();
      cluster.Settle();
      for (const auto& [request, sink] : clients) {
        EXPECT_EQ(sink->tokens, Greedy(request.prompt, 25, model)) << stages;
      }
      const EngineCounters counters = cluster.Snapshot().counters;
      EXPECT_EQ(counters.ledger_mismatches, 0u) << stages;
      EXPECT_EQ(counters.item_errors, 0u) << stages;
      EXPECT_EQ(counters.preemptions, 0u) << stages;
      cluster.ExpectEmpty();
    }
  }
}

// Stages whose layers can be cut, and what makes prompts go by waves beside answers.
constexpr uint32_t kManyLayers = 12;
constexpr double kFixedMs = 10;
constexpr double kRowMs = 1;

EngineConfig WaveConfig(const ModelSpec& model, uint64_t pages) {
  EngineConfig config = MakeConfig(2, pages);
  config.kv_groups = model.kv_groups;
  config.max_batch_tokens = 128;
  for (EngineStage& stage : config.stages) {
    stage.kv_pages.assign(model.kv_groups.size(), pages);
    stage.layers = kManyLayers / 2;
  }
  return config;
}

ModelSpec OfManyLayers(const ModelSpec& model) {
  return testing::HashModel(kManyLayers, model.kv_groups);
}

TEST(EngineOverRunners, PromptsThatGoByWavesBesideAnswersAreComputedAsOthers) {
  for (const ModelSpec& few : {Model(), WindowModel()}) {
    const ModelSpec model = OfManyLayers(few);
    SimCluster cluster(WaveConfig(model, 400), RunnerStages(model, kFixedMs, kRowMs));
    cluster.Start();
    std::vector<std::pair<SessionRequest, std::shared_ptr<SinkRecord>>> clients;
    for (uint32_t i = 0; i < 8; ++i) {
      const SessionRequest request = MakeRequest("answer" + std::to_string(i), 5 + i, 150);
      clients.emplace_back(request, cluster.Submit(request));
    }
    for (int i = 0; i < 200; ++i) {
      cluster.AcknowledgeFence();
      cluster.Deliver(static_cast<uint32_t>(i) % 3);
    }
    for (uint32_t i = 0; i < 3; ++i) {
      SessionRequest request = MakeRequest("prompt" + std::to_string(i), 480 + 7 * i, 3);
      request.prompt_logprobs = i == 1;
      clients.emplace_back(request, cluster.Submit(request));
    }
    cluster.RunToEnd();
    cluster.Settle();
    for (const auto& [request, sink] : clients) {
      EXPECT_EQ(sink->tokens, Greedy(request.prompt, sink->tokens.size(), model));
      EXPECT_TRUE(sink->done.has_value());
    }
    const EngineCounters counters = cluster.Snapshot().counters;
    EXPECT_GT(counters.slices_sent, 50u);
    EXPECT_EQ(counters.item_errors, 0u);
    EXPECT_EQ(counters.faults, 0u);
    cluster.ExpectEmpty();
    // Beside an answer's next token there are layers of the prompt, never all of a chunk of it.
    uint32_t most_layers = 0;
    for (const v1::StepFrame& frame : cluster.sent) {
      for (const v1::StepItem& item : frame.items()) {
        const uint32_t end = item.end_layer() == 0 ? kManyLayers : item.end_layer();
        if (item.token_ids_size() > 20) {
          most_layers = std::max(most_layers, end - item.from_layer());
        }
      }
    }
    EXPECT_LE(most_layers, kManyLayers / 2);
  }
}

// One of the few requests of random runs, so that the oracle is cheap.
constexpr uint32_t kRandomKinds = 24;
SessionRequest RandomRequest(uint32_t kind, bool waves) {
  return Sampled("r" + std::to_string(kind), 1 + kind * (waves ? 12 : 5), 1 + kind % 7 * 8, kind);
}

// Random traffic over real worker cores, with every fault that links and workers can have.
class RandomRun {
 public:
  // With `answers` to the requests, steps carry drafts.
  RandomRun(uint64_t seed, std::map<std::string, std::vector<uint32_t>>* oracle,
            const ModelSpec& model, bool waves, std::shared_ptr<const KnownAnswers> answers)
      : random_(seed),
        oracle_(oracle),
        model_(model),
        waves_(waves),
        answers_(std::move(answers)),
        cluster_(Config(), waves ? RunnerStages(model, kFixedMs, kRowMs) : RunnerStages(model)) {
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
    if (waves_) {
      EngineConfig config = WaveConfig(model_, 30 + Below(40));
      config.max_batch_tokens = 60 + Below(100);
      config.step_timeout = std::chrono::seconds(2);
      config.kv_watermark = Below(3) * 0.05;
      return config;
    }
    const uint32_t stages = 1 + Below(kLayers);
    EngineConfig config = ConfigFor(model_, stages, 10 + Below(30));
    config.max_batch_tokens = 1 + Below(48);
    config.max_batch_items = 1 + Below(12);
    config.step_timeout = std::chrono::seconds(2);
    config.kv_watermark = Below(3) * 0.05;
    if (answers_ != nullptr) {
      config.speculate = Speculate::kAuto;
      config.make_drafter = Scripted(answers_, Below(11) * 0.1, config.vocab);
    }
    return config;
  }

  void Submit() {
    // Ids are used again.
    SessionRequest request = RandomRequest(Below(kRandomKinds), waves_);
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
        expected = Alone(request, model_).tokens;
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
  const ModelSpec model_;
  const bool waves_;
  const std::shared_ptr<const KnownAnswers> answers_;
  SimCluster cluster_;
  std::vector<std::pair<SessionRequest, std::shared_ptr<SinkRecord>>> clients_;
  uint64_t completed_ = 0;
};

class RandomFaultsTest : public ::testing::TestWithParam<ModelSpec> {
 protected:
  // What happened in runs of these seeds together.
  void RunSeeds(uint64_t seeds, const ModelSpec& model, bool waves,
                const std::shared_ptr<const KnownAnswers>& answers = nullptr) {
    std::map<std::string, std::vector<uint32_t>> oracle;
    for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      RandomRun run(seed, &oracle, model, waves, answers);
      const EngineCounters counters = run.Run(3000);
      completed_ += run.completed();
      sum_.faults += counters.faults;
      sum_.rebuilds += counters.rebuilds;
      sum_.preemptions += counters.preemptions;
      sum_.item_errors += counters.item_errors;
      sum_.failed += counters.failed;
      sum_.slices_sent += counters.slices_sent;
      sum_.tokens_drafted += counters.tokens_drafted;
      sum_.drafts_accepted += counters.drafts_accepted;
    }
  }

  EngineCounters sum_;
  uint64_t completed_ = 0;
};

TEST_P(RandomFaultsTest, NeverGiveAWrongToken) {
  RunSeeds(60, GetParam(), /*waves=*/false);
  for (const auto& [what, count] :
       std::initializer_list<std::pair<const char*, uint64_t>>{{"completed", completed_},
                                                               {"faults", sum_.faults},
                                                               {"rebuilds", sum_.rebuilds},
                                                               {"preemptions", sum_.preemptions},
                                                               {"item_errors", sum_.item_errors},
                                                               {"failed", sum_.failed}}) {
    EXPECT_GT(count, 20u) << what;
    RecordProperty(what, std::to_string(count));
  }
}

TEST_P(RandomFaultsTest, NeverGiveAWrongTokenToPromptsByWaves) {
  RunSeeds(40, OfManyLayers(GetParam()), /*waves=*/true);
  EXPECT_GT(completed_, 20u);
  EXPECT_GT(sum_.faults, 20u);
  EXPECT_GT(sum_.preemptions, 20u);
  EXPECT_GT(sum_.item_errors, 20u);
  EXPECT_GT(sum_.slices_sent, 1000u);
}

TEST_P(RandomFaultsTest, NeverGiveAWrongTokenWhereStepsCarryDrafts) {
  auto answers = std::make_shared<KnownAnswers>();
  for (uint32_t kind = 0; kind < kRandomKinds; ++kind) {
    const SessionRequest request = RandomRequest(kind, /*waves=*/false);
    answers->emplace(request.prompt, Alone(request, GetParam()).tokens);
  }
  RunSeeds(60, GetParam(), /*waves=*/false, answers);
  EXPECT_GT(completed_, 20u);
  EXPECT_GT(sum_.faults, 20u);
  EXPECT_GT(sum_.preemptions, 20u);
  EXPECT_GT(sum_.drafts_accepted, 500u);
  EXPECT_GT(sum_.tokens_drafted - sum_.drafts_accepted, 500u);
}

INSTANTIATE_TEST_SUITE_P(Models, RandomFaultsTest,
                         ::testing::Values(Model(), WindowModel(), AllWindowsModel()),
                         [](const auto& info) {
                           return info.index == 0   ? std::string("Full")
                                  : info.index == 1 ? std::string("Windows")
                                                    : std::string("OnlyWindows");
                         });

}  // namespace
}  // namespace strata
