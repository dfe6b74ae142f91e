// Drafts over real worker cores: whatever is drafted, tokens and log-probabilities are those of one
// worker without drafts, and no page is lost.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "tests/coordinator/engine/runner_stage.h"
#include "tests/coordinator/engine/scripted_constraint.h"
#include "tests/coordinator/engine/scripted_drafter.h"

namespace strata {
namespace {

constexpr uint32_t kLayers = 4;
constexpr uint32_t kVocab = 97;
// Always wrong, mostly wrong, mostly right, always right.
constexpr double kRights[] = {0, 0.4, 0.9, 1};

ModelSpec Model() { return testing::HashModel(kLayers); }

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

SessionRequest Sampled(const std::string& id, uint32_t prompt, uint32_t max_tokens, uint64_t seed) {
  SessionRequest request = MakeRequest(id, prompt, max_tokens);
  v1::SamplingParams* sampling = request.params.mutable_sampling();
  sampling->set_temperature(1);
  sampling->set_top_p(0.9f);
  sampling->set_repetition_penalty(1.1f);
  sampling->set_frequency_penalty(0.5f);
  sampling->set_presence_penalty(0.25f);
  sampling->set_seed(seed);
  return request;
}

// Tokens with their log-probabilities, as they are on the wire.
struct TokenSink : SinkRecord {
  Verdict OnToken(const TokenInfo& token) override {
    said.push_back(token.token.SerializeAsString());
    return SinkRecord::OnToken(token);
  }
  std::vector<std::string> said;
};

std::shared_ptr<TokenSink> Submit(SimCluster* cluster, SessionRequest request) {
  auto sink = std::make_shared<TokenSink>();
  EXPECT_TRUE(cluster->TrySubmit(std::move(request), sink).ok());
  return sink;
}

SessionRequest Held(SessionRequest request, const ConstraintScript& script) {
  request.constraint = std::make_shared<ScriptedConstraint>(script);
  return request;
}

// Requests of several kinds: greedy, sampled with penalties, with logprobs, with tokens that end
// it, with a least number of tokens, and such that are held to a constraint: which ends them or
// not, and which leaves many tokens or one. The constraints are new ones with each call.
std::vector<SessionRequest> Requests() {
  std::vector<SessionRequest> requests;
  requests.push_back(MakeRequest("greedy", 37, 60));
  requests.push_back(Sampled("sampled", 20, 50, 5));
  requests.push_back(Sampled("logprobs", 16, 45, 6));
  requests.back().params.set_logprobs(true);
  requests.back().params.set_top_logprobs(3);
  requests.push_back(Sampled("stops", 9, 60, 7));
  requests.back().stop_ids = {11, 23, 31, 47};
  requests.push_back(Sampled("least", 5, 60, 8));
  requests.back().stop_ids = {11, 23, 31, 47, 59, 61};
  requests.back().params.set_min_tokens(20);
  for (const uint32_t id : requests.back().stop_ids) {
    requests.back().params.add_stop_ids(id);
  }
  requests.push_back(MakeRequest("greedy-logprobs", 48, 33));
  requests.back().params.set_logprobs(true);
  requests.push_back(MakeRequest("short", 4, 1));
  requests.push_back(Held(MakeRequest("held", 21, 50), {.salt = 7}));
  requests.push_back(Held(Sampled("held-logprobs", 33, 50, 9), {.salt = 8, .one_in = 3}));
  requests.back().params.set_logprobs(true);
  requests.back().params.set_top_logprobs(3);
  requests.push_back(Held(Sampled("held-complete", 12, 60, 10), {.salt = 9, .tokens = 41}));
  requests.push_back(Held(MakeRequest("held-to-one", 15, 50), {.salt = 10, .one_in = 1'000'000}));
  requests.push_back(Held(Sampled("held-recurs", 18, 50, 11), {.salt = 11, .recur = 3}));
  requests.push_back(Held(Sampled("held-stops", 13, 60, 12), {.salt = 12, .one_in = 4}));
  requests.back().stop_ids = {11, 23, 31, 47};
  return requests;
}

// What each says alone, on one worker, without drafts.
class Expected {
 public:
  explicit Expected(const ModelSpec& model) {
    for (const SessionRequest& request : Requests()) {
      SimCluster cluster(ConfigFor(model, 1, 64), RunnerStages(model));
      cluster.Start();
      const auto sink = Submit(&cluster, request);
      cluster.RunToEnd();
      EXPECT_TRUE(sink->done.has_value());
      EXPECT_EQ(sink->done->drafted_tokens, 0u);
      sinks_[request.request_id] = sink;
      answers_->emplace(request.prompt, sink->tokens);
    }
  }

  void Check(const std::string& id, const TokenSink& sink) const {
    const TokenSink& alone = *sinks_.at(id);
    ASSERT_TRUE(sink.done.has_value()) << id;
    EXPECT_EQ(sink.said, alone.said) << id;
    EXPECT_EQ(sink.done->reason, alone.done->reason) << id;
    EXPECT_EQ(sink.done->completion_tokens, alone.done->completion_tokens) << id;
    EXPECT_LE(sink.done->accepted_tokens, sink.done->drafted_tokens);
    EXPECT_LE(sink.done->accepted_tokens, sink.done->completion_tokens);
  }
  std::shared_ptr<const KnownAnswers> answers() const { return answers_; }

 private:
  std::map<std::string, std::shared_ptr<TokenSink>> sinks_;
  std::shared_ptr<KnownAnswers> answers_ = std::make_shared<KnownAnswers>();
};

const Expected& ExpectedOf(int kind) {
  static const Expected full(Model());
  static const Expected windows(
      testing::HashModel(kLayers, {{KvKind::kFull, 0}, {KvKind::kWindow, 20}}));
  return kind == 0 ? full : windows;
}

ModelSpec ModelOf(int kind) {
  return kind == 0 ? Model()
                   : testing::HashModel(kLayers, {{KvKind::kFull, 0}, {KvKind::kWindow, 20}});
}

EngineConfig Drafting(int kind, uint32_t stages, uint64_t pages, double right) {
  EngineConfig config = ConfigFor(ModelOf(kind), stages, pages);
  config.speculate = Speculate::kLookup;
  config.make_drafter = Scripted(ExpectedOf(kind).answers(), right, kVocab);
  return config;
}

TEST(EngineDrafts, ChangeNoTokenWhateverIsDrafted) {
  for (const int kind : {0, 1}) {
    for (uint32_t stages = 1; stages <= kLayers; ++stages) {
      for (const double right : kRights) {
        SCOPED_TRACE(std::to_string(kind) + " " + std::to_string(stages) + " " +
                     std::to_string(right));
        EngineConfig config = Drafting(kind, stages, 64, right);
        const bool forced = stages % 2 == 0;  // What constraints force is drafted too.
        config.speculate = forced ? Speculate::kAuto : Speculate::kLookup;
        SimCluster cluster(config, RunnerStages(ModelOf(kind)));
        cluster.Start();
        std::map<std::string, std::shared_ptr<TokenSink>> sinks;
        for (const SessionRequest& request : Requests()) {
          sinks[request.request_id] = Submit(&cluster, request);
        }
        cluster.RunToEnd();
        cluster.Settle();
        for (const auto& [id, sink] : sinks) {
          ExpectedOf(kind).Check(id, *sink);
        }
        cluster.ExpectEmpty();
        const EngineCounters counters = cluster.Snapshot().counters;
        EXPECT_EQ(counters.faults + counters.item_errors + counters.replays, 0u);
        EXPECT_GT(counters.tokens_drafted, 0u);
        EXPECT_EQ(counters.drafts_accepted > 0, right > 0 || forced);
      }
    }
  }
}

const SessionRequest& Find(const std::vector<SessionRequest>& requests, const std::string& id) {
  for (const SessionRequest& request : requests) {
    if (request.request_id == id) {
      return request;
    }
  }
  ADD_FAILURE() << id;
  return requests.front();
}

// What a constraint leaves one token for is drafted by whoever has `auto`, though no drafter knows.
TEST(EngineDrafts, WhatAConstraintForcesIsDrafted) {
  for (const Speculate speculate : {Speculate::kAuto, Speculate::kLookup, Speculate::kOff}) {
    EngineConfig config = Drafting(0, 2, 64, 0);
    config.speculate = speculate;
    config.make_drafter = [](Speculate, uint32_t) { return nullptr; };
    SimCluster cluster(config, RunnerStages(Model()));
    cluster.Start();
    const auto sink = Submit(&cluster, Find(Requests(), "held-to-one"));
    cluster.RunToEnd();
    ExpectedOf(0).Check("held-to-one", *sink);
    const bool forced = speculate == Speculate::kAuto;
    EXPECT_EQ(sink->done->drafted_tokens > 0, forced);
    EXPECT_EQ(sink->done->accepted_tokens, sink->done->drafted_tokens);
    if (forced) {
      EXPECT_LE(sink->done->steps, 10u);
      EXPECT_EQ(cluster.Snapshot().counters.accepted_by_source[DraftSource::kConstraint],
                sink->done->accepted_tokens);
    }
  }
}

// Sets that are made beside the engine: nothing is drafted before they are there.
TEST(EngineDrafts, ChangeNoTokenWhereSetsComeLate) {
  const ConstraintScript script{.salt = 7};
  for (const double right : kRights) {
    SimCluster cluster(Drafting(0, 2, 64, right), RunnerStages(Model()));
    cluster.Start();
    SessionRequest request = Find(Requests(), "held");
    const auto late = std::make_shared<ScriptedConstraint>(script, /*at_once=*/false);
    request.constraint = late;
    const auto sink = Submit(&cluster, request);
    for (int i = 0; i < 1000 && !sink->ended(); ++i) {
      cluster.Settle();
      late->Make();
      cluster.engine().OnConstraint(request.key, cluster.now());
    }
    ExpectedOf(0).Check("held", *sink);
    EXPECT_EQ(sink->done->accepted_tokens > 0, right > 0);
    cluster.Settle();
    cluster.ExpectEmpty();
  }
}

// A step has room for so many masks, those behind drafts included.
TEST(EngineDrafts, MasksBehindThemLeaveRoomForThoseOfOtherAnswers) {
  std::map<bool, std::vector<std::vector<uint32_t>>> answers;
  for (const bool drafts : {false, true}) {
    const auto known = std::make_shared<KnownAnswers>();
    for (size_t i = 0; i < answers[false].size(); ++i) {
      known->emplace(MakeRequest("r" + std::to_string(i), 4, 30).prompt, answers[false][i]);
    }
    EngineConfig config = ConfigFor(Model(), 1, 600);
    config.max_batch_tokens = 4096;
    config.speculate = drafts ? Speculate::kLookup : Speculate::kOff;
    config.make_drafter = Scripted(known, 1, kVocab);
    SimCluster cluster(config, RunnerStages(Model()));
    cluster.Start();
    std::vector<std::shared_ptr<TokenSink>> sinks;
    for (uint32_t i = 0; i < 40; ++i) {
      sinks.push_back(Submit(
          &cluster, Held(MakeRequest("r" + std::to_string(i), 4, 30), {.salt = uint64_t{i} + 1})));
    }
    cluster.RunToEnd();
    size_t behind = 0;
    for (const v1::StepFrame& frame : cluster.sent) {
      size_t named = 0;
      for (const v1::StepItem& item : frame.items()) {
        named += (item.has_mask() ? 1 : 0) + static_cast<size_t>(item.draft_masks_size());
        behind += static_cast<size_t>(item.draft_masks_size());
      }
      EXPECT_LE(named, 128u);
    }
    EXPECT_EQ(behind > 0, drafts);
    for (const auto& sink : sinks) {
      answers[drafts].push_back(sink->tokens);
    }
    EXPECT_EQ(cluster.Snapshot().counters.item_errors, 0u);
  }
  EXPECT_EQ(answers[true], answers[false]);
}

// One that is always right takes far fewer steps.
TEST(EngineDrafts, AnswersTakeFewerStepsTheMoreIsRight) {
  std::map<double, uint64_t> steps;
  for (const double right : kRights) {
    SimCluster cluster(Drafting(0, 2, 64, right), RunnerStages(Model()));
    cluster.Start();
    const auto sink = Submit(&cluster, Requests()[0]);
    cluster.RunToEnd();
    ExpectedOf(0).Check("greedy", *sink);
    steps[right] = sink->done->steps;
    if (right == 1) {
      EXPECT_EQ(sink->done->accepted_tokens, sink->done->drafted_tokens);
    }
  }
  EXPECT_EQ(steps[0], 60u);
  EXPECT_LT(steps[0.9], 30u);
  EXPECT_LE(steps[1], 8u);
}

TEST(EngineDrafts, ARequestMaySayOtherwiseThanTheModel) {
  for (const bool model : {false, true}) {
    EngineConfig config = Drafting(0, 1, 64, 1);
    config.speculate = model ? Speculate::kAuto : Speculate::kOff;
    SimCluster cluster(config, RunnerStages(Model()));
    cluster.Start();
    SessionRequest request = Requests()[0];
    request.speculate = model ? Speculate::kOff : Speculate::kLookup;
    const auto sink = Submit(&cluster, request);
    cluster.RunToEnd();
    ExpectedOf(0).Check("greedy", *sink);
    EXPECT_EQ(sink->done->drafted_tokens > 0, !model);
  }
}

// What one answer said is drafted for later ones of the same tenant, and of no other.
TEST(EngineDrafts, RecentAnswersAreLookedUpWithinATenant) {
  EngineConfig config = ConfigFor(Model(), 2, 64);
  config.prefix_cache = false;
  config.speculate = Speculate::kLookup;
  for (const bool keeps : {true, false}) {
    config.speculate_memory = keeps ? 1 << 20 : 0;
    SimCluster cluster(config, RunnerStages(Model()));
    cluster.Start();
    std::map<std::string, uint32_t> accepted;
    for (const std::string tenant : {"a", "b", "a"}) {
      SessionRequest request = Find(Requests(), "sampled");
      request.cache_salt = tenant;
      const auto sink = Submit(&cluster, request);
      cluster.RunToEnd();
      ExpectedOf(0).Check("sampled", *sink);
      if (!accepted.contains(tenant)) {
        EXPECT_EQ(sink->done->accepted_tokens, 0u);
      }
      accepted[tenant] = sink->done->accepted_tokens;
    }
    EXPECT_EQ(accepted["a"] > 30, keeps);
    EXPECT_EQ(cluster.Snapshot().counters.accepted_by_source[DraftSource::kRecentAnswer],
              accepted["a"]);
    cluster.Settle();
    cluster.ExpectEmpty();
  }
}

// An answer of a request that is not to be drafted is not kept for others either.
TEST(EngineDrafts, AnswersWithoutThemAreNotKept) {
  EngineConfig config = ConfigFor(Model(), 1, 64);
  config.speculate = Speculate::kLookup;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  for (const Speculate speculate : {Speculate::kOff, Speculate::kLookup}) {
    SessionRequest request = Find(Requests(), "sampled");
    request.speculate = speculate;
    const auto sink = Submit(&cluster, request);
    cluster.RunToEnd();
    EXPECT_EQ(sink->done->accepted_tokens, 0u);
  }
}

// Few pages: sessions give way to one another, and drafts never take what somebody waits for.
TEST(EngineDrafts, ChangeNoTokenOfSessionsThatGiveWay) {
  uint64_t preemptions = 0;
  const std::pair<uint64_t, uint32_t> kPools[] = {{8, 2}, {9, 4}, {11, 1}, {13, 2}};
  for (const auto& [pages, stages] : kPools) {
    for (const double right : kRights) {
      for (const bool cache : {false, true}) {
        EngineConfig config = Drafting(0, stages, pages, right);
        config.prefix_cache = cache;
        SimCluster cluster(config, RunnerStages(Model()));
        cluster.Start();
        std::map<std::string, std::shared_ptr<TokenSink>> sinks;
        for (const SessionRequest& request : Requests()) {
          sinks[request.request_id] = Submit(&cluster, request);
        }
        cluster.RunToEnd();
        cluster.Settle();
        for (const auto& [id, sink] : sinks) {
          ExpectedOf(0).Check(id, *sink);
        }
        cluster.ExpectSums();
        if (!cache) {
          cluster.ExpectEmpty();
        }
        const EngineCounters counters = cluster.Snapshot().counters;
        EXPECT_EQ(counters.ledger_mismatches + counters.item_errors, 0u);
        preemptions += counters.preemptions;
      }
    }
  }
  EXPECT_GT(preemptions, 10u);
}

// A stop string is found in the text once a token is the answer's: what the same step has behind it
// is nobody's, whether it was drafted rightly or not.
TEST(EngineDrafts, WhatIsBehindAStopStringIsNobodys) {
  const auto expected = [](uint32_t tokens) {
    SimCluster alone(ConfigFor(Model(), 1, 64), RunnerStages(Model()));
    alone.Start();
    auto sink = std::make_shared<TokenSink>();
    sink->stop_after = tokens;
    EXPECT_TRUE(alone.TrySubmit(Find(Requests(), "logprobs"), sink).ok());
    alone.RunToEnd();
    return sink;
  };
  for (uint32_t tokens = 1; tokens <= 20; ++tokens) {
    const auto alone = expected(tokens);
    ASSERT_EQ(alone->said.size(), tokens);
    for (const double right : kRights) {
      SimCluster cluster(Drafting(0, 1 + tokens % kLayers, 64, right), RunnerStages(Model()));
      cluster.Start();
      auto sink = std::make_shared<TokenSink>();
      sink->stop_after = tokens;
      ASSERT_TRUE(cluster.TrySubmit(Find(Requests(), "logprobs"), sink).ok());
      const auto other = Submit(&cluster, Find(Requests(), "greedy"));
      cluster.RunToEnd();
      cluster.Settle();
      EXPECT_EQ(sink->said, alone->said) << right;
      EXPECT_EQ(sink->done->reason, "stop");
      ExpectedOf(0).Check("greedy", *other);
      cluster.ExpectEmpty();
    }
  }
}

// Rows whose logits travel back would have to be taken back with drafts.
TEST(EngineDrafts, RequestsThatWantLogitsHaveNone) {
  EngineConfig config = Drafting(0, 2, 64, 1);
  config.speculate = Speculate::kAuto;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  SessionRequest request = Find(Requests(), "greedy");
  request.return_logits = true;
  request.speculate = Speculate::kAuto;
  const auto sink = Submit(&cluster, std::move(request));
  cluster.RunToEnd();
  ExpectedOf(0).Check("greedy", *sink);
  EXPECT_FALSE(sink->logits.empty());
  EXPECT_EQ(sink->done->drafted_tokens, 0u);
  EXPECT_EQ(cluster.Snapshot().counters.steps_ahead, 0u);
}

// Moves one frame through each stage in a turn, the last stage first, so that all work at once.
// Turns until no session is left; the most steps that were in flight.
std::pair<int, uint32_t> TurnsToEnd(SimCluster* cluster) {
  uint32_t most = 0;
  int turns = 0;
  while (cluster->engine().live_sessions() > 0 && turns < 10000) {
    cluster->AcknowledgeFence();
    bool moved = false;
    for (uint32_t stage = cluster->stage_count() + 1; stage-- > 0;) {
      moved = cluster->Deliver(stage) || moved;
    }
    most = std::max(most, cluster->Snapshot().steps_in_flight);
    ++turns;
    if (!moved && cluster->engine().NextWake().has_value()) {
      cluster->Advance(std::chrono::milliseconds(1));
    }
  }
  return {turns, most};
}

// Steps ahead of results, of a session that is alone: the more is right, the more stages are at
// work.
TEST(EngineDrafts, ASessionAloneHasAStepOnEachStage) {
  for (uint32_t stages = 2; stages <= 4; ++stages) {
    for (const bool cache : {false, true}) {
      std::map<double, int> turns;
      for (const double right : {0.0, 0.8, 0.97, 1.0}) {
        EngineConfig config = Drafting(0, stages, 64, right);
        config.prefix_cache = cache;
        SimCluster cluster(config, RunnerStages(Model()));
        cluster.Start();
        for (const SessionRequest& request : Requests()) {
          const auto sink = Submit(&cluster, request);
          const auto [taken, most] = TurnsToEnd(&cluster);
          cluster.Settle();
          ExpectedOf(0).Check(request.request_id, *sink);
          turns[right] += taken;
          EXPECT_LE(most, stages);
          // Of four stages all have one only where the answer is that long. With a constraint none
          // goes ahead.
          EXPECT_TRUE(most >= std::min(stages, 3u) || right < 1 || request.max_tokens < 40 ||
                      request.constraint != nullptr)
              << most;
        }
        cluster.ExpectSums();
        if (!cache) {
          cluster.ExpectEmpty();
        }
        const EngineCounters counters = cluster.Snapshot().counters;
        EXPECT_EQ(counters.faults + counters.item_errors + counters.replays, 0u);
        EXPECT_TRUE(counters.tokens_drafted > counters.drafts_accepted || right == 1);
      }
      EXPECT_LT(turns[1.0] * 4, turns[0.0]);
      EXPECT_LT(turns[0.97], turns[0.8]);
    }
  }
}

// A link breaks, or a stage starts anew, with steps ahead under way at every point.
TEST(EngineDrafts, StepsAheadChangeNoTokenBehindAFence) {
  for (const bool restart : {false, true}) {
    for (int delivered = 0; delivered < 40; ++delivered) {
      for (const double right : {0.9, 0.97, 1.0}) {
        SimCluster cluster(Drafting(0, 3, 64, right), RunnerStages(Model()));
        cluster.Start();
        const auto sink = Submit(&cluster, Requests()[2]);
        for (int i = 0; i < delivered; ++i) {
          cluster.AcknowledgeFence();
          cluster.Deliver(static_cast<uint32_t>(i % 4));
        }
        if (restart) {
          cluster.stage(1).Restart();
        }
        cluster.BreakLink();
        cluster.RunToEnd();
        cluster.Settle();
        ExpectedOf(0).Check("logprobs", *sink);
        cluster.ExpectEmpty();
        EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 0u);
      }
    }
  }
}

// A link breaks, or a stage starts anew, with drafts under way at every point of the first steps.
TEST(EngineDrafts, ChangeNoTokenBehindAFence) {
  for (const bool restart : {false, true}) {
    for (int delivered = 0; delivered < 40; ++delivered) {
      for (const double right : kRights) {
        SimCluster cluster(Drafting(0, 2, 64, right), RunnerStages(Model()));
        cluster.Start();
        const auto one = Submit(&cluster, Requests()[0]);
        const auto two = Submit(&cluster, Requests()[2]);
        const auto held = Submit(&cluster, Find(Requests(), "held-logprobs"));
        for (int i = 0; i < delivered; ++i) {
          cluster.AcknowledgeFence();
          cluster.Deliver(static_cast<uint32_t>(i % 3));
        }
        if (restart) {
          cluster.stage(1).Restart();
        }
        cluster.BreakLink();
        cluster.RunToEnd();
        cluster.Settle();
        ExpectedOf(0).Check("greedy", *one);
        ExpectedOf(0).Check("logprobs", *two);
        ExpectedOf(0).Check("held-logprobs", *held);
        cluster.ExpectEmpty();
        EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 0u);
      }
    }
  }
}

// What breaks a stage is not the request's when it was drafted: it goes on without.
TEST(EngineDrafts, ADraftThatAStageFailsAtIsNotTheRequestsFault) {
  constexpr uint32_t kPoison = 96;
  SessionRequest request = MakeRequest("r", 20, 40);
  (*request.params.mutable_sampling()->mutable_logit_bias())[kPoison] = -1e9f;
  std::replace(request.prompt.begin(), request.prompt.end(), kPoison, 0u);
  EngineConfig config = ConfigFor(Model(), 2, 64);
  SimCluster alone(config, RunnerStages(Model()));
  alone.Start();
  const auto expected = Submit(&alone, request);
  alone.RunToEnd();

  config.speculate = Speculate::kLookup;
  config.make_drafter = [](Speculate, uint32_t) {
    struct Poisoner : Drafter {
      Draft Next(std::span<const uint32_t>, uint32_t) override { return {{kPoison}, 32}; }
    };
    return std::make_unique<Poisoner>();
  };
  SimCluster cluster(config, RunnerStages(Model()));
  dynamic_cast<RunnerStage&>(cluster.stage(0)).shard().PoisonToken(kPoison, 0);
  cluster.Start();
  const auto sink = Submit(&cluster, request);
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(sink->said, expected->said);
  EXPECT_EQ(cluster.Snapshot().counters.item_errors, 1u);
  EXPECT_EQ(cluster.Snapshot().counters.replays, 1u);
  cluster.ExpectEmpty();
}

// Workers of an older version refuse drafts: each model is asked once.
TEST(EngineDrafts, StagesThatRefuseThemAreAskedNoMore) {
  EngineConfig config = MakeConfig(2);
  config.speculate = Speculate::kAuto;
  config.make_drafter = Scripted(std::make_shared<KnownAnswers>(), 1, kVocab);
  SimCluster cluster(config);
  cluster.fake(1).before_item = [](v1::StepItem* item) {
    if (item->draft_tokens() > 0) {
      *item->mutable_error() = DetailOf(
          Error(absl::StatusCode::kUnimplemented, "DRAFT_TOKENS_UNSUPPORTED", "not supported yet"));
    }
  };
  cluster.Start();
  for (int i = 0; i < 3; ++i) {
    const SessionRequest request = MakeRequest("r" + std::to_string(i), 12, 20);
    const auto sink = Submit(&cluster, request);
    cluster.RunToEnd();
    EXPECT_EQ(sink->tokens, OracleAnswer(request.prompt, 20, kVocab));
  }
  // The item that was ahead of its result is refused with it.
  EXPECT_LE(cluster.Snapshot().counters.item_errors, 2u);
  EXPECT_EQ(cluster.Snapshot().counters.replays, 1u);
}

TEST(EngineDrafts, StagesThatRefuseMasksBehindThemAreAskedNoMore) {
  EngineConfig config = MakeConfig(2);
  config.speculate = Speculate::kAuto;
  config.make_drafter = Scripted(std::make_shared<KnownAnswers>(), 1, kVocab);
  SimCluster cluster(config);
  cluster.fake(1).before_item = [](v1::StepItem* item) {
    if (item->draft_masks_size() > 0) {
      *item->mutable_error() = DetailOf(
          Error(absl::StatusCode::kUnimplemented, "DRAFT_MASKS_UNSUPPORTED", "not supported yet"));
    }
  };
  cluster.Start();
  for (int i = 0; i < 3; ++i) {
    const SessionRequest request = MakeRequest("r" + std::to_string(i), 12, 20);
    const auto sink = Submit(&cluster, Held(request, {.one_in = 1}));
    cluster.RunToEnd();
    EXPECT_EQ(sink->tokens, OracleAnswer(request.prompt, 20, kVocab));
  }
  EXPECT_EQ(cluster.Snapshot().counters.item_errors, 1u);
  // Others may draft.
  const auto sink = Submit(&cluster, MakeRequest("free", 12, 20));
  cluster.RunToEnd();
  EXPECT_GT(sink->done->drafted_tokens, 0u);
}

// A token that the mask behind a draft bars is none of a result's.
TEST(EngineDrafts, AResultThatPassesAMaskBehindADraftEndsTheEpoch) {
  SimCluster cluster(Drafting(0, 1, 64, 1), RunnerStages(Model()));
  cluster.Start();
  const auto sink = Submit(&cluster, Find(Requests(), "held"));
  bool changed = false;
  for (int i = 0; i < 40 && !changed; ++i) {
    cluster.AcknowledgeFence();
    cluster.Deliver(0);
    if (!cluster.results.empty() && cluster.results.front().header.items_size() == 1 &&
        cluster.results.front().header.items(0).tokens_size() > 3) {
      v1::TokenLogprob* last = cluster.results.front().header.mutable_items(0)->mutable_tokens(
          cluster.results.front().header.items(0).tokens_size() - 1);
      const auto next = ScriptedNext({.salt = 7}, [&] {
        std::vector<uint32_t> answer = sink->tokens;
        const auto& tokens = cluster.results.front().header.items(0).tokens();
        for (int t = 0; t + 1 < tokens.size(); ++t) answer.push_back(tokens[t].token_id());
        return answer;
      }());
      uint32_t barred = 0;
      while (MaskHas(next->bits, barred)) ++barred;
      last->set_token_id(barred);
      changed = true;
    }
    cluster.Deliver(1);
  }
  ASSERT_TRUE(changed);
  EXPECT_EQ(cluster.Snapshot().counters.faults, 1u);
  cluster.RunToEnd();
  ExpectedOf(0).Check("held", *sink);
}

// What a result must not say of drafts.
TEST(EngineDrafts, AResultThatAcceptsWhatWasNotDraftedEndsTheEpoch) {
  for (const int wrong : {0, 1, 2, 3}) {
    SimCluster cluster(Drafting(0, 1, 64, 1), RunnerStages(Model()));
    cluster.Start();
    const auto sink = Submit(&cluster, Requests()[0]);
    bool changed = false;
    for (int i = 0; i < 20 && !changed; ++i) {
      cluster.AcknowledgeFence();
      cluster.Deliver(0);
      if (!cluster.results.empty() && cluster.results.front().header.items_size() == 1 &&
          cluster.results.front().header.items(0).tokens_size() > 3) {
        v1::ItemResult* item = cluster.results.front().header.mutable_items(0);
        changed = true;
        if (wrong == 0)
          item->mutable_tokens(1)->set_token_id((item->tokens(1).token_id() + 1) % 97);
        if (wrong == 1) item->mutable_tokens()->RemoveLast();
        if (wrong == 2) *item->add_tokens() = item->tokens(0);
        if (wrong == 3) item->clear_tokens();
      }
      cluster.Deliver(1);
    }
    ASSERT_TRUE(changed);
    EXPECT_EQ(cluster.Snapshot().counters.faults, 1u) << wrong;
    cluster.RunToEnd();
    ExpectedOf(0).Check("greedy", *sink);
  }
}

// A client goes away, or reads no further, at every point.
TEST(EngineDrafts, LeaveNothingWhereAClientEndsOrWaits) {
  for (int delivered = 0; delivered < 60; ++delivered) {
    for (const bool cancel : {false, true}) {
      EngineConfig config = Drafting(0, 2, 64, 0.9);
      SimCluster cluster(config, RunnerStages(Model()));
      cluster.Start();
      const SessionRequest request = Requests()[0];
      const auto sink = Submit(&cluster, request);
      for (int i = 0; i < delivered; ++i) {
        cluster.AcknowledgeFence();
        cluster.Deliver(static_cast<uint32_t>(i % 3));
      }
      if (cancel) {
        cluster.engine().Cancel(request.key, absl::OkStatus(), cluster.now());
        cluster.Settle();
        EXPECT_TRUE(sink->ended());
      } else {
        cluster.engine().SetPaused(request.key, true, cluster.now());
        cluster.Settle();
        // Nothing of a draft is left while it waits.
        for (const KvSnapshot& kv : cluster.Snapshot().kv) {
          const auto known = static_cast<uint64_t>(37 + sink->tokens.size());
          EXPECT_LE(kv.live, (known + 1 + 15) / 16) << delivered;
        }
        cluster.engine().SetPaused(request.key, false, cluster.now());
        cluster.RunToEnd();
        cluster.Settle();
        ExpectedOf(0).Check("greedy", *sink);
      }
      cluster.ExpectEmpty();
    }
  }
}

}  // namespace
}  // namespace strata
