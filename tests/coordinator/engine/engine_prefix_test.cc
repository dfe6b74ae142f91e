// Cached prefixes over real shard runners: the same answers, less work, exact pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/limits.h"
#include "common/status.h"
#include "tests/coordinator/engine/runner_stage.h"

namespace strata {
namespace {

constexpr uint32_t kLayers = 3;

ModelSpec Model() { return testing::HashModel(kLayers); }

EngineConfig Config(uint32_t stages = 2, uint64_t pages = 64) {
  EngineConfig config = MakeConfig(stages, pages);
  config.prefix_cache = true;
  return config;
}

std::vector<uint32_t> Tokens(uint32_t seed, uint32_t count) {
  std::mt19937_64 random(seed);
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<uint32_t>(random() % 96));
  }
  return tokens;
}

// `shared` tokens of family 1, then `own` ones of family `own_seed`.
SessionRequest Request(const std::string& id, uint32_t shared, uint32_t own, uint32_t own_seed,
                       uint32_t max_tokens = 6) {
  SessionRequest request = MakeRequest(id, 1, max_tokens);
  request.prompt = Tokens(1, shared);
  const std::vector<uint32_t> tail = Tokens(own_seed, own);
  request.prompt.insert(request.prompt.end(), tail.begin(), tail.end());
  v1::SamplingParams* sampling = request.params.mutable_sampling();
  sampling->set_temperature(1);
  sampling->set_repetition_penalty(1.1f);
  sampling->set_seed(own_seed);
  request.params.set_logprobs(true);
  request.params.set_top_logprobs(3);
  return request;
}

// The same alone on one worker, with no cache.
std::vector<uint32_t> Alone(SessionRequest request) {
  EngineConfig config = MakeConfig(1, 128);
  config.context = 2048;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  request.deadline.reset();
  const auto sink = cluster.Submit(std::move(request));
  cluster.RunToEnd();
  EXPECT_TRUE(sink->done.has_value());
  return sink->tokens;
}

void ExpectNoDisagreement(SimCluster& cluster) {
  const EngineCounters counters = cluster.Snapshot().counters;
  EXPECT_EQ(counters.ledger_mismatches, 0u);
  EXPECT_EQ(counters.prefix_forks_failed, 0u);
  cluster.ExpectSums();
  for (const KvSnapshot& kv : cluster.Snapshot().kv) {
    EXPECT_EQ(kv.live + kv.fenced, 0u);
  }
  for (uint32_t s = 0; s < cluster.stage_count(); ++s) {
    EXPECT_EQ(cluster.stage(s).sequences(), cluster.Snapshot().cached_sequences);
  }
}

TEST(EnginePrefix, AHitComputesOnlyTheRestAndAnswersTheSame) {
  for (uint32_t stages = 1; stages <= kLayers; ++stages) {
    SimCluster cluster(Config(stages), RunnerStages(Model()));
    cluster.Start();
    const SessionRequest first = Request("a", 50, 10, 2);
    const SessionRequest second = Request("b", 50, 7, 3);
    const auto one = cluster.Submit(first);
    cluster.RunToEnd();
    cluster.Settle();
    const uint64_t rows = cluster.Snapshot().counters.rows_committed;
    const auto two = cluster.Submit(second);
    cluster.RunToEnd();
    cluster.Settle();
    EXPECT_EQ(one->done->cached_tokens, 0u);
    EXPECT_EQ(two->done->cached_tokens, 50u);  // Three pages, and two tokens of a copied one.
    // Its prompt less the hit, and each generated token but the last.
    EXPECT_EQ(cluster.Snapshot().counters.rows_committed - rows, 57u - 50 + 5);
    EXPECT_EQ(one->tokens, Alone(first));
    EXPECT_EQ(two->tokens, Alone(second));
    EXPECT_EQ(cluster.Snapshot().counters.prefix_queries, 2u);
    EXPECT_EQ(cluster.Snapshot().counters.prefix_hits, 1u);
    EXPECT_EQ(cluster.Snapshot().counters.prefix_hit_tokens, 50u);
    ExpectNoDisagreement(cluster);
  }
}

TEST(EnginePrefix, OfSeveralPagesThatGoOnAlikeTheLongestIsCopied) {
  SimCluster cluster(Config(), RunnerStages(Model()));
  cluster.Start();
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  const std::vector<std::pair<uint32_t, uint32_t>> cases = {
      {36, 0}, {43, 36}, {39, 39}, {47, 43}, {63, 47}, {34, 34}};  // Shared tokens, and cached.
  uint32_t seed = 10;
  for (const auto& [shared, cached] : cases) {
    const SessionRequest request = Request("r" + std::to_string(seed), shared, 30, seed);
    ++seed;
    const auto sink = cluster.Submit(request);
    cluster.RunToEnd();
    EXPECT_EQ(sink->done->cached_tokens, cached) << shared;
    EXPECT_EQ(sink->tokens, Alone(request)) << shared;
  }
  cluster.Settle();
  ExpectNoDisagreement(cluster);
}

TEST(EnginePrefix, TheSamePromptAgainStillComputesItsLastToken) {
  SimCluster cluster(Config(), RunnerStages(Model()));
  cluster.Start();
  const SessionRequest request = Request("a", 48, 0, 2);
  const std::vector<uint32_t> expected = Alone(request);
  for (const uint32_t cached : {0u, 47u, 47u}) {
    const auto sink = cluster.Submit(request);
    cluster.RunToEnd();
    EXPECT_EQ(sink->tokens, expected);
    EXPECT_EQ(sink->done->cached_tokens, cached);
  }
  cluster.Settle();
  ExpectNoDisagreement(cluster);
}

TEST(EnginePrefix, WhoNeedsWhatAPausedSessionComputesAgainGetsIt) {
  EngineConfig config = Config();
  config.max_batch_tokens = 1;  // The last token of its fourth page comes alone.
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  const SessionRequest request = Request("a", 40, 0, 2, 60);
  const auto sink = cluster.Submit(request);
  for (uint32_t i = 0; sink->tokens.size() < 23; ++i) {
    ASSERT_LT(i, 10000u);
    cluster.AcknowledgeFence();
    cluster.Deliver(i % 3);
  }
  ASSERT_TRUE(cluster.engine().SetPaused(request.key, true, cluster.now()));
  cluster.Settle();
  ASSERT_EQ(sink->tokens.size(), 24u);
  cluster.Suspend(64);
  SessionRequest same = Request("b", 40, 0, 3);
  same.prompt.insert(same.prompt.end(), sink->tokens.begin(), sink->tokens.end());
  same.prompt.push_back(7);
  const auto waiting = cluster.Submit(same);
  cluster.Resume();
  cluster.Settle();
  ASSERT_TRUE(waiting->done.has_value());
  EXPECT_EQ(waiting->done->cached_tokens, 64u);
  EXPECT_EQ(waiting->tokens, Alone(same));
  EXPECT_EQ(sink->tokens.size(), 25u);
  ASSERT_TRUE(cluster.engine().SetPaused(request.key, false, cluster.now()));
  cluster.RunToEnd();
  EXPECT_EQ(sink->tokens, Alone(request));
}

TEST(EnginePrefix, AConversationGoesOnWhereItsAnswerEnded) {
  SimCluster cluster(Config(), RunnerStages(Model()));
  cluster.Start();
  SessionRequest request = Request("a", 30, 0, 2, 20);
  const auto first = cluster.Submit(request);
  cluster.RunToEnd();
  SessionRequest next = request;
  next.prompt.insert(next.prompt.end(), first->tokens.begin(), first->tokens.end());
  const std::vector<uint32_t> question = Tokens(9, 5);
  next.prompt.insert(next.prompt.end(), question.begin(), question.end());
  const auto second = cluster.Submit(next);
  cluster.RunToEnd();
  EXPECT_EQ(second->done->cached_tokens, 48u);  // Of 30 + 19 computed ones, whole pages.
  EXPECT_EQ(second->tokens, Alone(next));
  cluster.Settle();
  ExpectNoDisagreement(cluster);
}

TEST(EnginePrefix, RequestsThatArriveMeanwhileWaitForThePrefixBeingComputed) {
  EngineConfig config = Config(2, 256);
  config.max_batch_tokens = 16;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  cluster.Settle();
  std::vector<SessionRequest> requests;
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (uint32_t i = 0; i < 16; ++i) {
    requests.push_back(Request("r" + std::to_string(i), 100, 8, 10 + i));
    sinks.push_back(cluster.Submit(requests.back()));
  }
  cluster.RunToEnd();
  cluster.Settle();
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(sinks[i]->tokens, Alone(requests[i])) << i;
    EXPECT_EQ(sinks[i]->done->cached_tokens, i == 0 ? 0u : 96u) << i;
  }
  const EngineCounters counters = cluster.Snapshot().counters;
  EXPECT_EQ(counters.rows_committed, 108u + 15 * 12 + 16 * 5);
  ExpectNoDisagreement(cluster);
}

TEST(EnginePrefix, WhoWaitedGoesOnItselfWhenTheOtherIsCancelled) {
  EngineConfig config = Config();
  config.max_batch_tokens = 16;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  cluster.Settle();
  const SessionRequest second = Request("b", 100, 8, 3);
  const auto one = cluster.Submit(Request("a", 100, 8, 2));
  const auto two = cluster.Submit(second);
  for (int frame = 0; frame < 2; ++frame) {  // Some of it is committed.
    cluster.Deliver(0);
    cluster.Deliver(1);
    cluster.Deliver(2);
  }
  EXPECT_TRUE(cluster.engine().Cancel("scope/a", absl::OkStatus(), cluster.now()));
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(one->done->reason, "cancelled");
  EXPECT_EQ(two->tokens, Alone(second));
  ExpectNoDisagreement(cluster);
}

TEST(EnginePrefix, RowsOfThePromptAreComputedWithoutAHit) {
  SimCluster cluster(Config(), RunnerStages(Model()));
  cluster.Start();
  cluster.Submit(Request("a", 64, 4, 2));
  cluster.RunToEnd();
  for (const bool logits : {false, true}) {
    SessionRequest request = Request("b", 64, 4, 3);
    request.return_logits = logits;
    request.prompt_logprobs = !logits;
    const auto sink = cluster.Submit(request);
    cluster.RunToEnd();
    EXPECT_EQ(sink->done->cached_tokens, 0u);
    EXPECT_EQ(sink->next_row, logits ? 68u + 6 - 1 : 67u);
  }
  cluster.Settle();
  ExpectNoDisagreement(cluster);
}

TEST(EnginePrefix, TenantsShareNothing) {
  SimCluster cluster(Config(), RunnerStages(Model()));
  cluster.Start();
  for (const char* salt : {"alice", "bob"}) {
    SessionRequest request = Request("a", 64, 4, 2);
    request.cache_salt = salt;
    const auto first = cluster.Submit(request);
    cluster.RunToEnd();
    EXPECT_EQ(first->done->cached_tokens, 0u) << salt;
    const auto again = cluster.Submit(request);
    cluster.RunToEnd();
    EXPECT_EQ(again->done->cached_tokens, 64u) << salt;
  }
}

TEST(EnginePrefix, WhenOffNothingIsKept) {
  EngineConfig off = Config();
  off.prefix_cache = false;
  SimCluster cluster(off, RunnerStages(Model()));
  cluster.Start();
  for (int i = 0; i < 2; ++i) {
    const auto sink = cluster.Submit(Request("a", 64, 4, 2));
    cluster.RunToEnd();
    EXPECT_EQ(sink->done->cached_tokens, 0u);
  }
  cluster.Settle();
  cluster.ExpectEmpty();
}

TEST(EnginePrefix, CachedPagesGiveWayBeforeAnybodyIsPreempted) {
  SimCluster cluster(Config(2, 12), RunnerStages(Model()));
  cluster.Start();
  cluster.Submit(Request("a", 0, 120, 2));
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(cluster.Snapshot().kv[0].cached, 7u);
  const SessionRequest large = Request("b", 0, 150, 3, 30);
  const auto sink = cluster.Submit(large);
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(sink->tokens, Alone(large));
  EXPECT_EQ(cluster.Snapshot().counters.preemptions, 0u);
  EXPECT_GT(cluster.Snapshot().counters.prefix_evictions, 0u);
  ExpectNoDisagreement(cluster);
}

TEST(EnginePrefix, CachedPagesGiveWayToAllWhoWaitInOneStep) {
  EngineConfig config = Config(2, 23);  // Of which the cache leaves a tenth free.
  config.kv_watermark = 0;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  for (uint32_t i = 0; i < 4; ++i) {
    cluster.Submit(Request("old" + std::to_string(i), 0, 80, 2 + i));
    cluster.RunToEnd();
  }
  cluster.Settle();
  EXPECT_EQ(cluster.Snapshot().kv[0].cached, 19u);
  for (uint32_t i = 0; i < 4; ++i) {
    cluster.Submit(Request("new" + std::to_string(i), 0, 50, 10 + i));
  }
  // The first one's pages went with a step of their own, those of the others all with the next.
  for (uint32_t hop = 0; hop < 6; ++hop) {
    cluster.Deliver(hop % 3);
  }
  const EngineSnapshot snapshot = cluster.Snapshot();
  EXPECT_EQ(std::count_if(snapshot.sessions.begin(), snapshot.sessions.end(),
                          [](const SessionSnapshot& session) { return session.state == "queued"; }),
            0);
  cluster.RunToEnd();
  cluster.Settle();
  ExpectNoDisagreement(cluster);
}

TEST(EnginePrefix, CachedPagesGiveWayToThoseWhoWaitWhileSomebodyWaitsToGrow) {
  EngineConfig config = Config(2, 40);
  config.kv_watermark = 0;
  SimCluster cluster(config, RunnerStages(Model()));
  cluster.Start();
  for (uint32_t i = 0; i < 7; ++i) {
    cluster.Submit(Request("old" + std::to_string(i), 0, 80, 2 + i));
    cluster.RunToEnd();
  }
  for (uint32_t i = 0; i < 8; ++i) {
    cluster.Submit(Request("grows" + std::to_string(i), 0, 13, 20 + i, 40));
  }
  uint32_t next = 0;
  uint32_t looks = 0;
  for (uint32_t hop = 0; hop < 200; ++hop) {
    if (hop % 4 == 0 && next < 20) {
      cluster.Submit(Request("new" + std::to_string(next), 0, 60, 40 + next));
      ++next;
    }
    cluster.Deliver(hop % 3);
    const EngineSnapshot snapshot = cluster.Snapshot();
    const bool waits = std::any_of(snapshot.sessions.begin(), snapshot.sessions.end(),
                                   [](const SessionSnapshot& s) { return s.state == "queued"; });
    for (const KvSnapshot& kv : snapshot.kv) {
      if (waits && kv.cached > 0) {
        ++looks;
        EXPECT_GE(kv.free + kv.fenced, 4u) << "hop " << hop << ": " << kv.cached << " are cached";
      }
    }
  }
  EXPECT_GT(looks, 20u);
  cluster.RunToEnd();
  cluster.Settle();
  ExpectNoDisagreement(cluster);
}

TEST(EnginePrefix, WhoComesToAPoolFullOfCachedPrefixesStartsAtOnce) {
  SimCluster cluster(Config(2, 60), RunnerStages(Model()));
  cluster.Start();
  for (uint32_t i = 0; i < 12; ++i) {
    cluster.Submit(Request("old" + std::to_string(i), 0, 80, 2 + i));
    cluster.RunToEnd();
  }
  cluster.Settle();
  EXPECT_GE(cluster.Snapshot().kv[0].free, 6u);
  EXPECT_GE(cluster.Snapshot().kv[0].cached, 50u);
  cluster.Submit(Request("new", 0, 80, 20));
  ASSERT_EQ(cluster.Snapshot().sessions.size(), 1u);
  EXPECT_NE(cluster.Snapshot().sessions.front().state, "queued");
  cluster.RunToEnd();
  cluster.Settle();
  ExpectNoDisagreement(cluster);
}

TEST(EnginePrefix, CachedSequencesSurviveAFence) {
  SimCluster cluster(Config(), RunnerStages(Model()));
  cluster.Start();
  cluster.Submit(Request("a", 64, 4, 2));
  cluster.RunToEnd();
  cluster.Settle();
  cluster.BreakLink();
  cluster.Settle();
  const SessionRequest request = Request("b", 64, 4, 3);
  const auto sink = cluster.Submit(request);
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(sink->done->cached_tokens, 64u);
  EXPECT_EQ(sink->tokens, Alone(request));
  ExpectNoDisagreement(cluster);
}

TEST(EnginePrefix, WhatAStageLostIsForgotten) {
  SimCluster cluster(Config(), RunnerStages(Model()));
  cluster.Start();
  cluster.Submit(Request("a", 64, 4, 2));
  cluster.RunToEnd();
  cluster.Settle();
  cluster.stage(1).Restart();
  cluster.BreakLink();
  cluster.Settle();
  const SessionRequest request = Request("b", 64, 4, 3);
  const auto sink = cluster.Submit(request);
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(sink->done->cached_tokens, 0u);
  EXPECT_EQ(sink->tokens, Alone(request));
  ExpectNoDisagreement(cluster);
}

// Random shared prefixes on a pool that is too small for all, cancels, broken links, lost state.
class PrefixChurn {
 public:
  explicit PrefixChurn(uint64_t seed)
      : random_(seed), cluster_(MakeChurnConfig(), RunnerStages(Model())) {
    cluster_.record_frames = false;
    cluster_.Start();
  }

  EngineCounters Run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      Event();
      cluster_.ExpectSums();
    }
    cluster_.RunToEnd();
    cluster_.Settle();
    for (const auto& [request, sink] : clients_) {
      EXPECT_TRUE(sink->ended());
      if (sink->done.has_value() && sink->done->reason != "cancelled") {
        EXPECT_EQ(sink->tokens, Alone(request)) << request.request_id;
      }
    }
    ExpectNoDisagreement(cluster_);
    return cluster_.Snapshot().counters;
  }

 private:
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

  EngineConfig MakeChurnConfig() {
    EngineConfig config = Config(1 + Below(kLayers), 14 + Below(20));
    config.max_batch_tokens = 8 + Below(64);
    config.max_sessions = 2 + Below(8);
    return config;
  }

  void Event() {
    const uint32_t what = Below(100);
    if (what < 12) {
      const SessionRequest request =
          Request("r" + std::to_string(next_++), Below(6) * 16 + Below(3), 1 + Below(30),
                  2 + Below(4), 1 + Below(24));
      const auto sink = std::make_shared<SinkRecord>();
      if (cluster_.TrySubmit(request, sink).ok()) {
        clients_.emplace_back(request, sink);
      }
    } else if (what < 14 && !clients_.empty()) {
      const auto& [request, sink] = clients_[Below(static_cast<uint32_t>(clients_.size()))];
      cluster_.engine().Cancel(request.key, absl::OkStatus(), cluster_.now());
    } else if (what == 14) {
      const uint32_t stage = Below(cluster_.stage_count());
      cluster_.links[stage].clear();
      if (Below(3) == 0) {
        cluster_.stage(stage).Restart();
      }
      cluster_.BreakLink();
    } else if (what < 20) {
      cluster_.AcknowledgeFence();
      cluster_.Advance(milliseconds(1));
    } else {
      cluster_.Deliver(Below(cluster_.stage_count() + 1));
    }
  }

  std::mt19937_64 random_;
  SimCluster cluster_;
  std::vector<std::pair<SessionRequest, std::shared_ptr<SinkRecord>>> clients_;
  uint32_t next_ = 0;
};

TEST(EnginePrefix, AnswersUnderChurnAreThoseWithoutACache) {
  EngineCounters sum;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const EngineCounters counters = PrefixChurn(seed).Run(600);
    sum.prefix_hits += counters.prefix_hits;
    sum.prefix_evictions += counters.prefix_evictions;
    sum.preemptions += counters.preemptions;
    sum.faults += counters.faults;
  }
  EXPECT_GT(sum.prefix_hits, 200u);
  EXPECT_GT(sum.prefix_evictions, 100u);
  EXPECT_GT(sum.preemptions, 10u);
  EXPECT_GT(sum.faults, 50u);
}

// Others between the two would hold up both.
TEST(EnginePrefix, AMoreImportantRequestDoesNotWaitForALessImportantOnesPrefix) {
  for (const int32_t priority : {0, 1}) {
    EngineConfig config = Config(2, 128);
    config.max_batch_tokens = 16;
    SimCluster cluster(config, RunnerStages(Model()));
    cluster.Start();
    cluster.Settle();
    const SessionRequest low = Request("low", 200, 3, 50);
    SessionRequest other = Request("other", 200, 5, 51);
    other.priority = priority;
    const auto low_sink = cluster.Submit(low);
    cluster.Deliver(0);
    const auto other_sink = cluster.Submit(other);
    while (low_sink->tokens.empty() && other_sink->tokens.empty()) {
      for (uint32_t stage = 0; stage <= 2; ++stage) cluster.Deliver(stage);
    }
    // Of equals the second waits, and computes its own tokens alone.
    EXPECT_EQ(low_sink->tokens.empty(), priority > 0);
    cluster.RunToEnd();
    EXPECT_EQ(cluster.Snapshot().counters.prefix_hits, priority > 0 ? 0u : 1u);
    EXPECT_EQ(low_sink->tokens, Alone(low));
    EXPECT_EQ(other_sink->tokens, Alone(other));
  }
}

// A pool that holds two prompts of 1,000 tokens, and many that share theirs.
TEST(EnginePrefix, AsManyRunAsTheirOwnPagesAllowWhenThousandTokensAreShared) {
  for (const bool cached_before : {true, false}) {
    SCOPED_TRACE(cached_before ? "cached before" : "all at once");
    EngineConfig config = Config(2, 150);
    config.context = 2048;
    SimCluster cluster(config, RunnerStages(Model()));
    cluster.Start();
    cluster.Settle();
    if (cached_before) {
      cluster.Submit(Request("first", 1000, 4, 99));
      cluster.RunToEnd();
    }
    std::vector<SessionRequest> requests;
    std::vector<std::shared_ptr<SinkRecord>> sinks;
    for (uint32_t i = 0; i < 20; ++i) {
      requests.push_back(Request("r" + std::to_string(i), 1000, 3 + i % 5, 200 + i, 12));
      sinks.push_back(cluster.Submit(requests.back()));
    }
    size_t most = 0;
    while (cluster.engine().live_sessions() > 0) {
      bool moved = cluster.AcknowledgeFence();
      for (uint32_t stage = 0; stage <= 2; ++stage) {
        moved = cluster.Deliver(stage) || moved;
      }
      ASSERT_TRUE(moved);
      const auto sessions = cluster.Snapshot().sessions;
      most = std::max<size_t>(
          most, std::count_if(sessions.begin(), sessions.end(), [](const SessionSnapshot& session) {
            return session.state != "queued" && session.state != "preempted";
          }));
      cluster.ExpectSums();
    }
    cluster.Settle();
    EXPECT_EQ(most, 20u);
    for (size_t i = 0; i < sinks.size(); ++i) {
      ASSERT_TRUE(sinks[i]->done.has_value());
      EXPECT_EQ(sinks[i]->tokens, Alone(requests[i]));
    }
    EXPECT_EQ(cluster.Snapshot().counters.preemptions, 0u);
    ExpectNoDisagreement(cluster);
  }
}

// It is the fork's then: nobody else is promised the pages.
TEST(EnginePrefix, PagesThatAForkStillHasAreNotPromisedWhenTheirSourceIsEvicted) {
  SimCluster cluster(Config(2, 16), RunnerStages(Model()));
  cluster.Start();
  cluster.Submit(Request("source", 112, 4, 2, 1));
  cluster.RunToEnd();
  const SessionRequest fork = Request("fork", 112, 9, 3, 60);
  const auto one = cluster.Submit(fork);
  cluster.Settle();
  // Takes all that is left: what is cached and nobody else's gives way for it, and no more.
  std::vector<SessionRequest> others;
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (uint32_t i = 0; i < 6; ++i) {
    others.push_back(MakeRequest("other" + std::to_string(i), 60, 30));
    sinks.push_back(cluster.Submit(others.back()));
  }
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(one->tokens, Alone(fork));
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(sinks[i]->tokens, Alone(others[i]));
  }
  ExpectNoDisagreement(cluster);
}

// What a claim shares is its own only by the Fork: a stage that refuses it costs pages.
TEST(EnginePrefix, ASessionWhoseForkIsRefusedIsChargedForAllOfIt) {
  SimCluster cluster(Config(2, 12), RunnerStages(Model()));
  cluster.Start();
  cluster.Submit(Request("source", 96, 4, 2, 1));
  cluster.RunToEnd();
  // The second stage has nothing of what the ledger says is cached.
  dynamic_cast<RunnerStage&>(cluster.stage(1)).runner().DropAllSequences();
  const SessionRequest fork = Request("fork", 96, 9, 3, 20);
  const auto sink = cluster.Submit(fork);
  const SessionRequest beside = MakeRequest("beside", 40, 30);
  const auto other = cluster.Submit(beside);
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(sink->tokens, Alone(fork));
  EXPECT_EQ(other->tokens, Alone(beside));
  cluster.ExpectSums();
}

// What two sessions share is each one's own again once both are computed anew. Of pages that lack
// then, the promised ones come first, however important the other is.
TEST(EnginePrefix, AGuaranteedSessionKeepsItsPagesWhereAllIsComputedAnew) {
  for (const int32_t priority : {-1, 1}) {
    EngineConfig config = Config(2, 6);
    config.kv_watermark = 0;
    SimCluster cluster(config, RunnerStages(Model()));
    cluster.Start();
    SessionRequest promised =
        Request("promised", 16, 4, 2, 20);  // Three pages, of which one is shared.
    promised.guaranteed = true;
    SessionRequest other = Request("other", 16, 36, 3, 10);  // Four.
    other.priority = priority;
    const auto sink = cluster.Submit(promised);
    while (sink->tokens.size() < 13) {  // It has begun the third.
      cluster.AcknowledgeFence();
      for (uint32_t stage = 0; stage <= 2; ++stage) {
        cluster.Deliver(stage);
      }
    }
    const auto second = cluster.Submit(other);
    for (int i = 0; i < 12; ++i) {
      cluster.Deliver(static_cast<uint32_t>(i % 3));
    }
    ASSERT_GT(cluster.Snapshot().counters.prefix_hits, 0u);
    cluster.stage(1).Restart();
    cluster.BreakLink();
    cluster.RunToEnd();
    ASSERT_TRUE(sink->done.has_value() && second->done.has_value());
    EXPECT_EQ(sink->done->preemptions, 0u);
    EXPECT_EQ(sink->tokens, Alone(promised));
    EXPECT_EQ(second->tokens, Alone(other));
    EXPECT_GT(cluster.Snapshot().counters.rebuilds, 1u);
  }
}

}  // namespace
}  // namespace strata
