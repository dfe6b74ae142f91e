// KV memory: who starts, how claims grow, who gives way, and that no answer changes by it.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/limits.h"
#include "common/status.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

using std::chrono::seconds;

std::vector<uint32_t> Answer(const SessionRequest& request) {
  return OracleAnswer(request.prompt, request.max_tokens, 97);
}

SessionRequest Guaranteed(const std::string& id, uint32_t prompt_tokens, uint32_t max_tokens) {
  SessionRequest request = MakeRequest(id, prompt_tokens, max_tokens);
  request.guaranteed = true;
  return request;
}

// Two sessions that fit at their start, and not at their end: the newer one gives way.
class TwoThatOutgrowThePool : public ::testing::Test {
 protected:
  TwoThatOutgrowThePool() : cluster_(Config()) {
    cluster_.Start();
    cluster_.Settle();
  }

  static EngineConfig Config() {
    EngineConfig config = MakeConfig(2, 10);
    config.kv_watermark = 0;
    return config;
  }

  // Until the first preemption, or the end.
  void RunToPreemption() {
    for (uint32_t i = 0; i < 10000 && cluster_.Snapshot().counters.preemptions == 0; ++i) {
      cluster_.Deliver(i % 3);
      cluster_.ExpectSums();
    }
    ASSERT_EQ(cluster_.Snapshot().counters.preemptions, 1u);
  }

  void ExpectAnswer(const SinkRecord& sink, const SessionRequest& request) {
    ASSERT_TRUE(sink.done.has_value());
    EXPECT_EQ(sink.tokens, Answer(request)) << request.request_id;
    EXPECT_EQ(sink.done->prompt_tokens, request.prompt.size());
  }

  void Finish() {
    cluster_.RunToEnd();
    cluster_.Settle();
    EXPECT_EQ(cluster_.Snapshot().counters.item_errors, 0u);
    EXPECT_EQ(cluster_.Snapshot().counters.failed, 0u);
    EXPECT_EQ(cluster_.Snapshot().counters.ledger_mismatches, 0u);
    cluster_.ExpectEmpty();
  }

  const SessionRequest old_ = MakeRequest("old", 40, 60);
  const SessionRequest new_ = MakeRequest("new", 40, 60);
  SimCluster cluster_;
};

TEST_F(TwoThatOutgrowThePool, AdmissionClaimsWhatIsKnownAndOneTokenMore) {
  cluster_.Submit(MakeRequest("r1", 31, 60));
  EXPECT_EQ(cluster_.Snapshot().kv[0].live, 2u);
  cluster_.Submit(MakeRequest("r2", 32, 60));
  EXPECT_EQ(cluster_.Snapshot().kv[0].live, 5u);
  cluster_.Submit(Guaranteed("r3", 32, 48));
  EXPECT_EQ(cluster_.Snapshot().kv[0].live, 10u);
}

TEST_F(TwoThatOutgrowThePool, ClaimsGrowAPageAtATimeBeforeTheStepThatNeedsIt) {
  const auto sink = cluster_.Submit(MakeRequest("r1", 15, 100));
  size_t frames = cluster_.sent.size();
  for (uint32_t i = 0; i < 100000 && !sink->ended(); ++i) {
    cluster_.Deliver(i % 3);
    const uint64_t live = cluster_.Snapshot().kv[0].live;
    for (; frames < cluster_.sent.size(); ++frames) {
      for (const v1::StepItem& item : cluster_.sent[frames].items()) {
        const uint64_t length = item.position() + static_cast<uint64_t>(item.token_ids_size());
        EXPECT_LE(length, live * kPageTokens);
        EXPECT_LE(live, length / kPageTokens + 1) << "no sooner than needed";
      }
    }
  }
  EXPECT_EQ(sink->tokens.size(), 100u);
}

TEST_F(TwoThatOutgrowThePool, TheNewestGivesWayAndBothAnswersAreAsAlone) {
  const auto first = cluster_.Submit(old_);
  const auto second = cluster_.Submit(new_);
  ASSERT_TRUE(second->started.has_value());
  RunToPreemption();
  EXPECT_EQ(cluster_.StateOf("old"), "decode");
  EXPECT_EQ(cluster_.StateOf("new"), "preempted");
  EXPECT_GT(second->tokens.size(), 0u) << "it keeps its tokens";
  Finish();
  ExpectAnswer(*first, old_);
  ExpectAnswer(*second, new_);
  EXPECT_EQ(second->done->queued.count(), 0) << "the wait before its first start";
}

TEST_F(TwoThatOutgrowThePool, PagesOfAPreemptedSessionReturnWhenItsReleaseIsCommitted) {
  cluster_.Submit(old_);
  cluster_.Submit(new_);
  RunToPreemption();
  const auto late = cluster_.Submit(MakeRequest("late", 1, 1));
  EXPECT_EQ(cluster_.Snapshot().kv[0].free, 0u);
  EXPECT_EQ(cluster_.Snapshot().kv[0].fenced, 5u);
  EXPECT_FALSE(late->started.has_value());
  cluster_.Deliver(0);
  cluster_.Deliver(1);
  EXPECT_EQ(cluster_.Snapshot().kv[0].fenced, 5u) << "released on the stages, not committed";
  while (cluster_.Snapshot().kv[0].fenced > 0) {
    ASSERT_TRUE(cluster_.Deliver(0) || cluster_.Deliver(1) || cluster_.Deliver(2));
  }
  Finish();
}

TEST_F(TwoThatOutgrowThePool, WhoWasPreemptedStartsBeforeWhoComesLater) {
  cluster_.Submit(old_);
  const auto second = cluster_.Submit(new_);
  RunToPreemption();
  const auto late = cluster_.Submit(MakeRequest("late", 1, 1));
  const size_t tokens = second->tokens.size();
  while (!late->started.has_value()) {
    EXPECT_EQ(cluster_.StateOf("new"), "preempted");
    cluster_.Deliver(0);
    cluster_.Deliver(1);
    cluster_.Deliver(2);
  }
  EXPECT_NE(cluster_.StateOf("new"), "preempted") << "it started again just before";
  EXPECT_EQ(second->tokens.size(), tokens);
  Finish();
}

TEST_F(TwoThatOutgrowThePool, ALowerPriorityGivesWayEvenWhenItIsOlder) {
  SessionRequest low = old_;
  low.priority = -1;
  const auto first = cluster_.Submit(low);
  const auto second = cluster_.Submit(new_);
  RunToPreemption();
  EXPECT_EQ(cluster_.StateOf("old"), "preempted");
  Finish();
  ExpectAnswer(*first, low);
  ExpectAnswer(*second, new_);
}

TEST_F(TwoThatOutgrowThePool, HigherPrioritiesAreAdmittedFirst) {
  cluster_.Submit(Guaranteed("full", 100, 60));
  const auto low = cluster_.Submit(MakeRequest("low", 100, 20));
  SessionRequest request = MakeRequest("high", 100, 20);
  request.priority = 1;
  const auto high = cluster_.Submit(request);
  while (!low->started.has_value() && !high->started.has_value()) {
    ASSERT_TRUE(cluster_.Deliver(0) || cluster_.Deliver(1) || cluster_.Deliver(2));
  }
  EXPECT_TRUE(high->started.has_value());
  EXPECT_FALSE(low->started.has_value());
  Finish();
}

TEST_F(TwoThatOutgrowThePool, AGuaranteedSessionIsNeverPreempted) {
  const auto first = cluster_.Submit(old_);
  const SessionRequest guaranteed = Guaranteed("new", 40, 56);  // Six pages of ten.
  const auto second = cluster_.Submit(guaranteed);
  ASSERT_TRUE(second->started.has_value());
  RunToPreemption();
  EXPECT_EQ(cluster_.StateOf("old"), "preempted") << "itself, as nobody else may be";
  EXPECT_EQ(cluster_.StateOf("new"), "decode");
  const size_t tokens = first->tokens.size();
  while (!second->ended()) {
    EXPECT_EQ(first->tokens.size(), tokens);
    ASSERT_TRUE(cluster_.Deliver(0) || cluster_.Deliver(1) || cluster_.Deliver(2));
  }
  Finish();
  ExpectAnswer(*first, old_);
  ExpectAnswer(*second, guaranteed);
}

TEST_F(TwoThatOutgrowThePool, RowsAreDeliveredOnceThroughPreemption) {
  SessionRequest request = new_;
  request.return_logits = true;
  cluster_.Submit(old_);
  const auto sink = cluster_.Submit(request);
  RunToPreemption();
  Finish();
  EXPECT_EQ(sink->next_row, 40u + 60 - 1) << "SinkRecord checks that each comes once";
}

TEST_F(TwoThatOutgrowThePool, APreemptedSessionMayBeCancelledOrExpireAtAnyMoment) {
  for (int moment = 0; moment < 40; ++moment) {
    SimCluster cluster(Config());
    cluster.Start();
    cluster.Settle();
    const auto first = cluster.Submit(old_);
    SessionRequest request = new_;
    request.deadline = cluster.now() + seconds(5);
    const auto second = cluster.Submit(request);
    for (uint32_t i = 0; cluster.Snapshot().counters.preemptions == 0; ++i) {
      cluster.Deliver(i % 3);
    }
    for (int i = 0; i < moment; ++i) {
      cluster.Deliver(static_cast<uint32_t>(i) % 3);
    }
    if (moment % 2 == 0) {
      cluster.engine().Cancel("scope/new", absl::OkStatus(), cluster.now());
    } else {
      cluster.Advance(seconds(5));
    }
    EXPECT_TRUE(second->ended());
    cluster.ExpectSums();
    cluster.RunToEnd();
    cluster.Settle();
    EXPECT_EQ(first->tokens, Answer(old_));
    cluster.ExpectEmpty();
  }
}

TEST_F(TwoThatOutgrowThePool, FaultsAtAnyMomentOfAPreemptionChangeNoToken) {
  for (int moment = 0; moment < 40; ++moment) {
    SimCluster cluster(Config());
    cluster.Start();
    cluster.Settle();
    const auto first = cluster.Submit(old_);
    const auto second = cluster.Submit(new_);
    for (uint32_t i = 0; cluster.Snapshot().counters.preemptions == 0; ++i) {
      cluster.Deliver(i % 3);
    }
    for (int i = 0; i < moment; ++i) {
      cluster.Deliver(static_cast<uint32_t>(i) % 3);
    }
    if (moment % 2 == 0) {
      cluster.fake(0).Forget();  // With every sequence: who runs begins anew too.
    }
    cluster.BreakLink();
    cluster.ExpectSums();
    cluster.RunToEnd();
    cluster.Settle();
    EXPECT_EQ(first->tokens, Answer(old_)) << moment;
    EXPECT_EQ(second->tokens, Answer(new_)) << moment;
    cluster.ExpectEmpty();
  }
}

// Of whom nothing was sent gives its pages back at once, more than are needed.
TEST(EngineMemory, NobodyNewStartsInTheStepInWhichSomebodyGaveWay) {
  EngineConfig config = MakeConfig(2, 20);
  config.kv_watermark = 0;
  config.max_batch_tokens = 8;
  SimCluster cluster(config);
  cluster.Start();
  cluster.Settle();
  const SessionRequest grows = MakeRequest("grows", 40, 60);  // 3 pages until its ninth token.
  const auto first = cluster.Submit(grows);
  while (first->tokens.empty()) {
    cluster.Deliver(0);
    cluster.Deliver(1);
    cluster.Deliver(2);
  }
  SessionRequest computes = MakeRequest("computes", 200, 1);  // 13 pages, and all prefill for now.
  computes.priority = 1;
  cluster.Submit(computes);
  const auto gives_way = cluster.Submit(MakeRequest("gives way", 50, 1));  // 4 pages.
  ASSERT_TRUE(gives_way->started.has_value());
  ASSERT_EQ(cluster.Snapshot().kv[0].free, 0u);
  SessionRequest small = MakeRequest("small", 4, 1);  // A page; before who gave way.
  small.priority = 1;
  const auto waits = cluster.Submit(small);
  while (cluster.Snapshot().counters.preemptions == 0) {
    ASSERT_TRUE(cluster.Deliver(0) || cluster.Deliver(1) || cluster.Deliver(2));
  }
  EXPECT_EQ(cluster.StateOf("gives way"), "preempted");
  EXPECT_EQ(cluster.Snapshot().kv[0].free, 3u);
  EXPECT_FALSE(waits->started.has_value());
  while (!waits->started.has_value()) {
    ASSERT_TRUE(cluster.Deliver(0) || cluster.Deliver(1) || cluster.Deliver(2));
  }
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(first->tokens, Answer(grows));
  EXPECT_TRUE(gives_way->done.has_value() && waits->done.has_value());
  cluster.ExpectEmpty();
}

TEST(EngineMemory, StartingLeavesAPageForEachThatRunsUpToTheWatermark) {
  EngineConfig config = MakeConfig(2, 20);
  config.kv_watermark = 0.1;  // Two pages.
  SimCluster cluster(config);
  cluster.Start();
  cluster.Settle();
  cluster.Submit(MakeRequest("r1", 100, 50));                      // 7 pages; one for it to grow.
  const auto second = cluster.Submit(MakeRequest("r2", 100, 50));  // 7 pages.
  const auto third = cluster.Submit(MakeRequest("r3", 70, 50));    // 5 pages: leaves one.
  EXPECT_TRUE(second->started.has_value());
  EXPECT_FALSE(third->started.has_value());
  cluster.engine().Cancel("scope/r3", absl::OkStatus(), cluster.now());
  const auto fourth = cluster.Submit(MakeRequest("r4", 50, 10));  // 4 pages: leaves two.
  EXPECT_TRUE(fourth->started.has_value());
  cluster.RunToEnd();
}

TEST(EngineMemory, WhatFillsThePoolAloneStartsInSpiteOfTheWatermark) {
  EngineConfig config = MakeConfig(2, 10);
  config.kv_watermark = 1;
  SimCluster cluster(config);
  cluster.Start();
  const auto small = cluster.Submit(MakeRequest("small", 20, 20));
  const SessionRequest request = MakeRequest("all", 159, 1);
  const auto sink = cluster.Submit(request);
  cluster.RunToEnd();
  EXPECT_TRUE(small->done.has_value());
  EXPECT_EQ(sink->tokens, Answer(request));
}

TEST(EngineMemory, AShrunkPoolChangesSpeedOnly) {
  SimCluster cluster(MakeConfig(2, 64));
  cluster.Start();
  cluster.Settle();
  std::vector<SessionRequest> requests;
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (uint32_t i = 0; i < 8; ++i) {
    requests.push_back(MakeRequest("r" + std::to_string(i), 30 + 7 * i, 60));
    sinks.push_back(cluster.Submit(requests.back()));
  }
  for (uint32_t i = 0; i < 60; ++i) {
    cluster.Deliver(i % 3);
  }
  std::vector<EngineStage> stages = cluster.config().stages;
  stages[0].kv_pages = stages[1].kv_pages = {10};
  ASSERT_TRUE(cluster.engine().CheckFits(stages).ok());
  cluster.Suspend(10);
  cluster.ExpectSums();
  EXPECT_GT(cluster.Snapshot().counters.preemptions, 0u);
  cluster.Resume();
  cluster.RunToEnd();
  cluster.Settle();
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(sinks[i]->tokens, Answer(requests[i]));
  }
  EXPECT_EQ(cluster.Snapshot().counters.failed, 0u);
  cluster.ExpectEmpty();
}

TEST(EngineMemory, AShrunkPoolKeepsWhatWasGuaranteedOrIsRefused) {
  SimCluster cluster(MakeConfig(2, 64));
  cluster.Start();
  cluster.Settle();
  cluster.Submit(MakeRequest("other", 60, 20));
  const auto first = cluster.Submit(Guaranteed("r1", 60, 20));
  const auto second = cluster.Submit(Guaranteed("r2", 60, 20));
  std::vector<EngineStage> stages = cluster.config().stages;
  stages[0].kv_pages = {9};
  const absl::Status status = cluster.engine().CheckFits(stages);
  EXPECT_EQ(ReasonOf(status), "KV_IN_USE");
  EXPECT_NE(status.message().find("\"r2\" was promised 80 tokens besides other guaranteed ones"),
            std::string::npos)
      << status;
  stages[0].kv_pages = {10};
  EXPECT_TRUE(cluster.engine().CheckFits(stages).ok());
  cluster.Suspend(10);
  EXPECT_EQ(cluster.StateOf("other"), "preempted");
  EXPECT_NE(cluster.StateOf("r1"), "preempted");
  EXPECT_NE(cluster.StateOf("r2"), "preempted");
  cluster.Resume();
  cluster.RunToEnd();
  EXPECT_TRUE(first->done.has_value() && second->done.has_value());
}

// Random sessions on pools that hold one of them, or a few: each ends as alone, whatever order
// frames travel in.
TEST(EngineMemory, UnderAnyPressureEverySessionEnds) {
  uint64_t preemptions = 0;
  for (uint64_t seed = 1; seed <= 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    EngineConfig config = MakeConfig(1 + random() % 3, 8 + random() % 8);
    config.kv_watermark = static_cast<double>(random() % 3) / 10;
    config.max_batch_tokens = 8 + random() % 40;
    SimCluster cluster(config);
    cluster.record_frames = false;
    cluster.Start();
    std::vector<SessionRequest> requests;
    std::vector<std::shared_ptr<SinkRecord>> sinks;
    for (uint32_t i = 0; i < 12; ++i) {
      requests.push_back(
          MakeRequest("r" + std::to_string(i), 1 + random() % 60, 1 + random() % 68));
      requests.back().guaranteed = random() % 6 == 0;
      requests.back().priority = static_cast<int32_t>(random() % 3);
      requests.back().cache_salt = std::string(random() % 3, 't');
      sinks.push_back(cluster.Submit(requests.back()));
      for (uint32_t n = random() % 40; n > 0; --n) {
        cluster.AcknowledgeFence();
        cluster.Deliver(random() % (cluster.stage_count() + 1));
        cluster.ExpectSums();
      }
    }
    cluster.RunToEnd();
    cluster.Settle();
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_EQ(sinks[i]->tokens, Answer(requests[i]));
    }
    const EngineCounters counters = cluster.Snapshot().counters;
    EXPECT_EQ(counters.failed + counters.item_errors + counters.faults, 0u);
    preemptions += counters.preemptions;
    cluster.ExpectEmpty();
  }
  EXPECT_GT(preemptions, 200u);
}

}  // namespace
}  // namespace strata
