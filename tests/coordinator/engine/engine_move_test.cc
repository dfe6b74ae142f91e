// Stages that are loaded anew, with other grants, under a running engine.
#include <gtest/gtest.h>

#include "common/status.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

using std::chrono::seconds;

std::vector<uint32_t> Answer(const SessionRequest& request) {
  return OracleAnswer(request.prompt, request.max_tokens, 97);
}

// A cluster that has started, and has delivered so many frames of four sessions.
class FourSessions {
 public:
  FourSessions(SimCluster* cluster, int delivered) {
    cluster->Start();
    cluster->Settle();
    for (uint32_t i = 0; i < 4; ++i) {
      requests_.push_back(MakeRequest("r" + std::to_string(i), 20 + 7 * i, 12));
      sinks_.push_back(cluster->Submit(requests_.back()));
    }
    for (int i = 0; i < delivered; ++i) {
      cluster->Deliver(static_cast<uint32_t>(i % 4));
    }
  }
  void ExpectAnswers() const {
    for (size_t i = 0; i < sinks_.size(); ++i) {
      EXPECT_EQ(sinks_[i]->tokens, Answer(requests_[i]));
    }
  }

 private:
  std::vector<SessionRequest> requests_;
  std::vector<std::shared_ptr<SinkRecord>> sinks_;
};

TEST(EngineMove, SessionsGoOnOverStagesLoadedAnew) {
  for (int moved = 0; moved < 60; ++moved) {
    SCOPED_TRACE("moved after " + std::to_string(moved) + " frames");
    SimCluster cluster(MakeConfig(3));
    const FourSessions sessions(&cluster, moved);
    cluster.Suspend(40);
    EXPECT_EQ(cluster.Snapshot().state, PipelineState::kSuspended);
    cluster.ExpectSums();
    cluster.Resume();
    cluster.RunToEnd();
    cluster.Settle();
    sessions.ExpectAnswers();
    EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 0u);
    EXPECT_EQ(cluster.Snapshot().kv_tokens, 40u * 16);
    cluster.ExpectEmpty();
  }
}

TEST(EngineMove, SessionsGoOnOverAnotherNumberOfStages) {
  for (int moved = 0; moved < 40; ++moved) {
    for (const uint32_t stages : {1u, 2u, 3u, 5u}) {
      SCOPED_TRACE(std::to_string(stages) + " stages after " + std::to_string(moved) + " frames");
      SimCluster cluster(MakeConfig(3));
      const FourSessions sessions(&cluster, moved);
      cluster.SuspendToMove(stages, 40);
      cluster.Resume();
      cluster.RunToEnd();
      cluster.Settle();
      sessions.ExpectAnswers();
      const EngineSnapshot snapshot = cluster.Snapshot();
      EXPECT_EQ(snapshot.counters.ledger_mismatches, 0u);
      ASSERT_EQ(snapshot.pipeline.stages.size(), stages);
      EXPECT_GT(snapshot.pipeline.stages.back().steps, 0u);
      EXPECT_EQ(snapshot.nodes.back(), "node" + std::to_string(stages - 1) + "-other");
      cluster.ExpectEmpty();
    }
  }
}

TEST(EngineMove, SessionsGoOnInAnotherNumericsClassAndAreToldFromWhichTokenOn) {
  for (int moved = 0; moved < 40; ++moved) {
    SCOPED_TRACE("moved after " + std::to_string(moved) + " frames");
    SimCluster cluster(MakeConfig(3));
    cluster.Start();
    cluster.Settle();
    const SessionRequest request = MakeRequest("r1", 40, 12);
    const auto sink = cluster.Submit(request);
    for (int i = 0; i < moved && !sink->ended(); ++i) {
      cluster.Deliver(static_cast<uint32_t>(i % 4));
    }
    const bool ended = sink->ended();
    const size_t before = sink->tokens.size();
    // Stages of the other class refuse fingerprints of the first one.
    cluster.SuspendToMove(2, 40, "test-2");
    cluster.Resume();
    const SessionRequest second = MakeRequest("r2", 30, 12);
    const auto later = cluster.Submit(second);
    cluster.RunToEnd();
    cluster.Settle();
    EXPECT_EQ(sink->tokens, Answer(request));
    EXPECT_EQ(later->tokens, Answer(second));
    using Classes = std::vector<std::pair<size_t, std::string>>;
    EXPECT_EQ(sink->classes, ended ? Classes() : (Classes{{before, "test-2"}}));
    EXPECT_EQ(later->classes, Classes()) << "it began so";
    EXPECT_EQ(cluster.Snapshot().counters.replays, 0u);
    EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 0u);
    // To the same once more: that is no change.
    const auto third = cluster.Submit(request);
    cluster.SuspendToMove(2, 40, "test-2");
    cluster.Resume();
    cluster.RunToEnd();
    EXPECT_EQ(third->classes, Classes());
    EXPECT_EQ(third->tokens, Answer(request));
  }
}

TEST(EngineMove, NothingIsComputedAgainWhereTheNewStagesHaveTheKv) {
  for (int moved = 0; moved < 60; ++moved) {
    SCOPED_TRACE("moved after " + std::to_string(moved) + " frames");
    SimCluster cluster(MakeConfig(3));
    const FourSessions sessions(&cluster, moved);
    cluster.Repoint();
    EXPECT_EQ(cluster.Snapshot().state, PipelineState::kSuspended);
    cluster.ExpectSums();
    cluster.ResumeInPlace();
    cluster.RunToEnd();
    cluster.Settle();
    sessions.ExpectAnswers();
    const EngineSnapshot snapshot = cluster.Snapshot();
    EXPECT_EQ(snapshot.counters.rebuilds, 0u);
    EXPECT_EQ(snapshot.counters.faults, 0u);
    EXPECT_EQ(snapshot.counters.ledger_mismatches, 0u);
    EXPECT_EQ(snapshot.nodes.back(), "node2-other");
    cluster.ExpectEmpty();
  }
}

TEST(EngineMove, StepsInFlightComeBackWhileItDrains) {
  SimCluster cluster(MakeConfig(3));
  cluster.Start();
  cluster.Settle();
  const SessionRequest request = MakeRequest("r1", 40, 30);
  const auto sink = cluster.Submit(request);
  for (int i = 0; i < 20; ++i) {
    cluster.Deliver(static_cast<uint32_t>(i % 4));
  }
  cluster.engine().Drain(true, cluster.now());
  EXPECT_FALSE(cluster.engine().drained());
  const size_t sent = cluster.sent.size();
  cluster.Settle();
  EXPECT_TRUE(cluster.engine().drained());
  EXPECT_EQ(cluster.sent.size(), sent);
  const auto late = cluster.Submit(MakeRequest("r2", 10, 2));
  EXPECT_EQ(cluster.sent.size(), sent) << "nor for others";
  cluster.engine().Drain(false, cluster.now());
  EXPECT_GT(cluster.sent.size(), sent);
  cluster.engine().Drain(true, cluster.now());
  cluster.Settle();
  cluster.Repoint();
  cluster.ResumeInPlace();
  cluster.RunToEnd();
  EXPECT_EQ(sink->tokens, Answer(request));
  EXPECT_EQ(cluster.Snapshot().counters.rebuilds, 0u);
}

TEST(EngineMove, WhatTheNewStageHasNotIsComputedAgain) {
  SimCluster cluster(MakeConfig(3));
  cluster.Start();
  cluster.Settle();
  const SessionRequest request = MakeRequest("r1", 40, 30);
  const auto sink = cluster.Submit(request);
  for (int i = 0; i < 40; ++i) {
    cluster.Deliver(static_cast<uint32_t>(i % 4));
  }
  ASSERT_FALSE(sink->tokens.empty());
  cluster.Repoint();
  cluster.fake(1).Restart();
  cluster.ResumeInPlace();
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(sink->tokens, Answer(request));
  EXPECT_EQ(cluster.Snapshot().counters.rebuilds, 1u);
  EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 0u);
  cluster.ExpectEmpty();
}

TEST(EngineMove, WhatIsKnownOfAStagesSpeedHoldsWhereItStays) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  cluster.Submit(MakeRequest("r1", 60, 4));
  cluster.RunToEnd();
  const uint64_t steps = cluster.Snapshot().pipeline.stages[0].steps;
  ASSERT_GT(steps, 0u);
  cluster.Suspend(40);
  EXPECT_EQ(cluster.Snapshot().pipeline.stages[0].steps, steps);
  cluster.SuspendToMove(2, 40);
  EXPECT_EQ(cluster.Snapshot().pipeline.stages[0].steps, 0u);
}

TEST(EngineMove, RowsAreDeliveredOnce) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  SessionRequest request = MakeRequest("r1", 40, 6);
  request.return_logits = true;
  const auto sink = cluster.Submit(request);
  cluster.Deliver(0);
  cluster.Deliver(1);
  cluster.Deliver(2);
  const uint32_t rows = sink->next_row;
  EXPECT_GT(rows, 0u);
  cluster.Suspend(40);
  cluster.Resume();
  cluster.RunToEnd();
  EXPECT_EQ(sink->next_row, 45u) << "SinkRecord checks that each comes once";
}

TEST(EngineMove, WhileSuspendedNothingIsSentAndRequestsQueue) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const SessionRequest first = MakeRequest("r1", 20, 8);
  const auto running = cluster.Submit(first);
  cluster.Suspend(64);
  const size_t sent = cluster.sent.size();
  const SessionRequest second = MakeRequest("r2", 20, 8);
  const auto queued = cluster.Submit(second);
  cluster.Settle();
  cluster.Advance(seconds(3600));
  EXPECT_EQ(cluster.sent.size(), sent) << "frames and results under way count for nothing";
  EXPECT_FALSE(running->ended() || queued->started.has_value());
  EXPECT_EQ(cluster.Snapshot().sessions[1].state, "queued");
  cluster.Resume();
  cluster.RunToEnd();
  EXPECT_EQ(running->tokens, Answer(first));
  EXPECT_EQ(queued->tokens, Answer(second));
}

TEST(EngineMove, DeadlinesAndCancelsHoldWhileSuspended) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  SessionRequest request = MakeRequest("r1", 20, 8);
  request.deadline = cluster.now() + seconds(5);
  const auto expires = cluster.Submit(request);
  const auto cancelled = cluster.Submit(MakeRequest("r2", 20, 8));
  cluster.Suspend(64);
  EXPECT_EQ(cluster.engine().NextWake(), request.deadline);
  EXPECT_TRUE(cluster.engine().Cancel("scope/r2", absl::OkStatus(), cluster.now()));
  EXPECT_EQ(cancelled->done->reason, "cancelled");
  cluster.Advance(seconds(5));
  EXPECT_EQ(ReasonOf(*expires->failed), "DEADLINE_EXCEEDED");
  cluster.Resume();
  cluster.Settle();
  cluster.ExpectEmpty();
}

TEST(EngineMove, ASmallerPoolIsRefusedWhileARequestWasPromisedMore) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const auto sink = cluster.Submit(MakeRequest("long", 100, 60));
  std::vector<EngineStage> stages = cluster.config().stages;
  stages[1].kv_pages = {10};
  EXPECT_TRUE(cluster.engine().CheckFits(stages).ok());
  stages[1].kv_pages = {9};
  const absl::Status status = cluster.engine().CheckFits(stages);
  EXPECT_EQ(ReasonOf(status), "KV_IN_USE");
  EXPECT_NE(status.message().find("\"long\" was promised 160 tokens"), std::string::npos) << status;
  EXPECT_NE(status.message().find("hold 144, limited by node \"node1\""), std::string::npos);
  EXPECT_FALSE(sink->ended());
}

TEST(EngineMove, WhatNoLongerFitsTogetherTakesTurns) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  std::vector<SessionRequest> requests;
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (uint32_t i = 0; i < 6; ++i) {
    requests.push_back(MakeRequest("r" + std::to_string(i), 60, 20));
    sinks.push_back(cluster.Submit(requests.back()));
    EXPECT_TRUE(sinks.back()->started.has_value());
  }
  cluster.Deliver(0);
  cluster.Suspend(10);  // Two of them at a time, 4 pages each at first, and one page to grow.
  cluster.ExpectSums();
  EXPECT_EQ(cluster.Snapshot().kv[0].live, 8u);
  cluster.Resume();
  cluster.RunToEnd();
  cluster.Settle();
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(sinks[i]->tokens, Answer(requests[i]));
  }
  cluster.ExpectEmpty();
}

TEST(EngineMove, GoingBackFailsOnlyWhatOnlyTheLargerPoolCouldHold) {
  SimCluster cluster(MakeConfig(2, 10));
  cluster.Start();
  cluster.Settle();
  const SessionRequest small = MakeRequest("small", 60, 20);
  const auto fits = cluster.Submit(small);
  cluster.Suspend(30);
  const auto large = cluster.Submit(MakeRequest("large", 200, 20));
  cluster.Suspend(10);
  EXPECT_EQ(ReasonOf(*large->failed), "KV_NEVER_FITS");
  cluster.Resume();
  cluster.RunToEnd();
  EXPECT_EQ(fits->tokens, Answer(small));
}

}  // namespace
}  // namespace strata
