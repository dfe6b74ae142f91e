// Sessions that break a stage: found by halves, failed alone; the others never notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

// Requests r0, r1, ... of which those in `poison` break the second of two stages when it comes to
// `position` of them: its links break, or it is gone with all it held.
class Suspects : public ::testing::TestWithParam<bool> {
 protected:
  void Run(int count, std::set<int> poison, uint32_t position, EngineConfig config) {
    poison_ = std::move(poison);
    SimCluster cluster(std::move(config));
    cluster.Start();
    cluster.Settle();
    for (int i = 0; i < count; ++i) {
      requests_.push_back(MakeRequest("r" + std::to_string(i), 20, 30));
      sinks_.push_back(cluster.Submit(requests_.back()));
    }
    while (cluster.engine().live_sessions() > 0) {
      if (BreaksNext(cluster, position)) {
        ASSERT_LT(++breaks_, 100);
        Break(&cluster);
        continue;
      }
      bool moved = cluster.AcknowledgeFence();
      for (uint32_t stage = 0; stage <= 2; ++stage) {
        // What breaks is looked for in front of each step of the second stage.
        moved = !BreaksNext(cluster, position) && (cluster.Deliver(stage) || moved);
      }
      cluster.ExpectSums();
      if (!moved && !BreaksNext(cluster, position)) {
        cluster.Advance(milliseconds(50));
      }
    }
    cluster.Settle();
    cluster.ExpectEmpty();
    counters_ = cluster.Snapshot().counters;
  }

  bool BreaksNext(SimCluster& cluster, uint32_t position) const {
    if (cluster.links[1].empty()) {
      return false;
    }
    const v1::StepFrame& frame = cluster.links[1].front().header;
    return std::any_of(frame.items().begin(), frame.items().end(), [&](const v1::StepItem& item) {
      const uint32_t end = item.position() + static_cast<uint32_t>(item.token_ids_size());
      return frame.epoch() == cluster.engine().epoch() && item.position() <= position &&
             position < end && poison_.contains(std::stoi(item.sequence().request_id().substr(1)));
    });
  }

  void Break(SimCluster* cluster) const {
    cluster->BreakLink();
    cluster->links[0].clear();
    cluster->links[1].clear();
    if (GetParam()) {
      cluster->pending_fence.reset();
      cluster->engine().LoseStages(
          Error(absl::StatusCode::kUnavailable, "NODE_LOST", "node1 is lost").Node("node1"),
          cluster->config().recovery_timeout, cluster->now());
      cluster->Advance(milliseconds(200));
      cluster->Resume();
    }
  }

  void ExpectOnlyPoisonFailed() {
    for (size_t i = 0; i < sinks_.size(); ++i) {
      SCOPED_TRACE("r" + std::to_string(i));
      if (!poison_.contains(static_cast<int>(i))) {
        EXPECT_TRUE(sinks_[i]->done.has_value());
        EXPECT_EQ(sinks_[i]->tokens, OracleAnswer(requests_[i].prompt, 30, 97));
        continue;
      }
      ASSERT_TRUE(sinks_[i]->failed.has_value());
      const v1::ErrorDetail detail = DetailOf(*sinks_[i]->failed);
      EXPECT_EQ(sinks_[i]->failed->code(), absl::StatusCode::kInternal)
          << "what a client may send again at once is UNAVAILABLE";
      EXPECT_EQ(detail.reason(), "REQUEST_BREAKS_STAGE");
      EXPECT_EQ(detail.request_id(), requests_[i].request_id);
      EXPECT_EQ(detail.node(), "node1");
      EXPECT_EQ(detail.facts().at("stage"), "1");
      EXPECT_NE(detail.message().find("\"r" + std::to_string(i) + "\" breaks stage 1"),
                std::string::npos)
          << detail.message();
    }
    EXPECT_EQ(counters_.offenders, poison_.size());
    EXPECT_EQ(counters_.ledger_mismatches, 0u);
    // Once for all that were in flight, and once more for each half.
    const double halves = std::ceil(std::log2(sinks_.size()));
    EXPECT_LE(breaks_, poison_.size() * std::max(4.0, halves + 1));
  }

  std::set<int> poison_;
  std::vector<SessionRequest> requests_;
  std::vector<std::shared_ptr<SinkRecord>> sinks_;
  EngineCounters counters_;
  int breaks_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Loses, Suspects, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Stages" : "Links"; });

TEST_P(Suspects, AnyOneOfEightFailsAlone) {
  for (int offender = 0; offender < 8; ++offender) {
    for (const uint32_t position : {5u, 19u, 33u}) {
      SCOPED_TRACE(offender);
      requests_.clear();
      sinks_.clear();
      breaks_ = 0;
      ASSERT_NO_FATAL_FAILURE(Run(8, {offender}, position, MakeConfig(2)));
      ExpectOnlyPoisonFailed();
    }
  }
}

TEST_P(Suspects, OneOfForty) {
  ASSERT_NO_FATAL_FAILURE(Run(40, {27}, 25, MakeConfig(2, 256)));
  ExpectOnlyPoisonFailed();
}

TEST_P(Suspects, TwoAreFoundOneAfterTheOther) {
  ASSERT_NO_FATAL_FAILURE(Run(8, {1, 6}, 30, MakeConfig(2)));
  ExpectOnlyPoisonFailed();
}

TEST_P(Suspects, OneThatIsAloneOnTheClusterIsGivenUpToo) {
  ASSERT_NO_FATAL_FAILURE(Run(1, {0}, 30, MakeConfig(2)));
  ExpectOnlyPoisonFailed();
}

TEST_P(Suspects, WhileOthersArePreemptedForTheirPages) {
  EngineConfig config = MakeConfig(2, 9);
  config.max_batch_tokens = 16;
  ASSERT_NO_FATAL_FAILURE(Run(8, {2}, 27, std::move(config)));
  ExpectOnlyPoisonFailed();
  EXPECT_GT(counters_.preemptions, 0u);
}

TEST_P(Suspects, WithAPrefixThatAllShare) {
  EngineConfig config = MakeConfig(2);
  config.prefix_cache = true;
  poison_ = {3};
  SimCluster cluster(std::move(config));
  cluster.Start();
  cluster.Settle();
  const std::vector<uint32_t> prefix = MakeRequest("prefix", 40, 1).prompt;
  for (int i = 0; i < 6; ++i) {
    SessionRequest request = MakeRequest("r" + std::to_string(i), 20, 30);
    request.prompt.insert(request.prompt.begin(), prefix.begin(), prefix.end());
    requests_.push_back(request);
    sinks_.push_back(cluster.Submit(request));
  }
  while (cluster.engine().live_sessions() > 0) {
    ASSERT_LT(breaks_, 10);
    if (BreaksNext(cluster, 70)) {
      ++breaks_;
      Break(&cluster);
      continue;
    }
    bool moved = cluster.AcknowledgeFence();
    for (uint32_t stage = 0; stage <= 2; ++stage) {
      moved = !BreaksNext(cluster, 70) && (cluster.Deliver(stage) || moved);
    }
    if (!moved && !BreaksNext(cluster, 70)) {
      cluster.Advance(milliseconds(50));
    }
  }
  counters_ = cluster.Snapshot().counters;
  ExpectOnlyPoisonFailed();
}

// Faults that no request brings about: nobody is blamed, and everybody is served.
TEST(NoSuspect, FaultsNowAndThenBlameNobody) {
  SimCluster cluster(MakeConfig(3));
  cluster.Start();
  cluster.Settle();
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (int i = 0; i < 8; ++i) {
    sinks.push_back(cluster.Submit(MakeRequest("r" + std::to_string(i), 20, 40)));
  }
  for (int event = 1; cluster.engine().live_sessions() > 0; ++event) {
    ASSERT_LT(event, 100000);
    if (event % 53 == 0) {
      cluster.BreakLink();
      for (auto& link : cluster.links) {
        link.clear();
      }
    }
    const bool fenced = cluster.AcknowledgeFence();
    if (!cluster.Deliver(static_cast<uint32_t>(event) % 4) && !fenced) {
      cluster.Advance(milliseconds(1));
    }
  }
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(sinks[i]->tokens,
              OracleAnswer(MakeRequest("r" + std::to_string(i), 20, 40).prompt, 40, 97));
  }
  EXPECT_GE(cluster.Snapshot().counters.faults, 10u);
  EXPECT_EQ(cluster.Snapshot().counters.offenders, 0u);
}

TEST(StagesLost, SessionsWaitForThemAndGoOnWithTheSameTokens) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const SessionRequest request = MakeRequest("r1", 20, 30);
  const auto sink = cluster.Submit(request);
  for (int i = 0; i < 20; ++i) {
    cluster.Deliver(static_cast<uint32_t>(i) % 3);
  }
  ASSERT_GT(sink->tokens.size(), 0u);
  cluster.engine().LoseStages(BrokenLink(), cluster.config().recovery_timeout, cluster.now());
  EXPECT_EQ(cluster.Snapshot().state, PipelineState::kSuspended);
  cluster.Advance(std::chrono::seconds(8));
  EXPECT_FALSE(sink->ended());
  cluster.Resume();
  cluster.RunToEnd();
  EXPECT_EQ(sink->tokens, OracleAnswer(request.prompt, 30, 97));
  cluster.Settle();
  cluster.ExpectEmpty();
}

TEST(StagesLost, SessionsFailWithTheLossWhenTheyDoNotComeBackInTime) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const auto sink = cluster.Submit(MakeRequest("r1", 20, 30));
  const nanoseconds patience = cluster.config().step_timeout + cluster.config().recovery_timeout;
  cluster.engine().LoseStages(
      Error(absl::StatusCode::kUnavailable, "NODE_LOST", "node1 is lost").Node("node1"),
      cluster.config().recovery_timeout, cluster.now());
  cluster.Advance(patience - milliseconds(1));
  EXPECT_FALSE(sink->ended());
  EXPECT_FALSE(cluster.engine().down());
  cluster.Advance(milliseconds(1));
  EXPECT_EQ(ReasonOf(sink->failed.value()), "NODE_LOST");
  EXPECT_TRUE(cluster.engine().down());
}

}  // namespace
}  // namespace strata
