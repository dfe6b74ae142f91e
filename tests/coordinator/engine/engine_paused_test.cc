// Sessions whose readers are behind: they wait, and cost nobody else anything but their memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<uint32_t> Answer(const SessionRequest& request) {
  return OracleAnswer(request.prompt, request.max_tokens, 97);
}

void SetPaused(SimCluster* cluster, const SessionRequest& request, bool paused) {
  ASSERT_TRUE(cluster->engine().SetPaused(request.key, paused, cluster->now()));
}

// Moves frames until `sink` has so many tokens.
void RunTo(SimCluster* cluster, const SinkRecord& sink, size_t tokens) {
  for (uint32_t i = 0; sink.tokens.size() < tokens; ++i) {
    ASSERT_LT(i, 10000u);
    cluster->AcknowledgeFence();
    cluster->Deliver(i % (cluster->stage_count() + 1));
  }
}

TEST(EnginePaused, ItComputesNoFurtherTokenWhileTheOthersGoOnToTheirEnd) {
  for (uint32_t stages = 1; stages <= 3; ++stages) {
    SimCluster cluster(MakeConfig(stages, 200));
    cluster.Start();
    const SessionRequest slow = MakeRequest("slow", 20, 30);
    const auto sink = cluster.Submit(slow);
    std::vector<SessionRequest> others;
    std::vector<std::shared_ptr<SinkRecord>> sinks;
    for (int i = 0; i < 5; ++i) {
      others.push_back(MakeRequest("r" + std::to_string(i), 10, 40));
      sinks.push_back(cluster.Submit(others.back()));
    }
    RunTo(&cluster, *sink, 3);
    SetPaused(&cluster, slow, true);
    cluster.Settle();
    EXPECT_LE(sink->tokens.size(), 4u) << "but for what was under way";
    EXPECT_EQ(cluster.StateOf("slow"), "paused");
    for (size_t i = 0; i < sinks.size(); ++i) {
      ASSERT_TRUE(sinks[i]->done.has_value());
      EXPECT_EQ(sinks[i]->tokens, Answer(others[i]));
    }
    EXPECT_EQ(cluster.Snapshot().steps_in_flight, 0u);
    EXPECT_GT(cluster.Snapshot().kv[0].live, 0u) << "it keeps its memory";
    SetPaused(&cluster, slow, false);
    cluster.RunToEnd();
    EXPECT_EQ(sink->tokens, Answer(slow));
    cluster.Settle();
    cluster.ExpectEmpty();
  }
}

TEST(EnginePaused, APromptIsComputedUpToItsFirstToken) {
  EngineConfig config = MakeConfig(2);
  config.max_batch_tokens = 16;
  SimCluster cluster(config);
  cluster.Start();
  const SessionRequest request = MakeRequest("r", 100, 8);
  const auto sink = cluster.Submit(request);
  SetPaused(&cluster, request, true);
  EXPECT_EQ(cluster.StateOf("r"), "queued");
  cluster.Settle();
  EXPECT_EQ(sink->tokens.size(), 1u);
  EXPECT_EQ(cluster.StateOf("r"), "paused");
  SetPaused(&cluster, request, false);
  cluster.RunToEnd();
  EXPECT_EQ(sink->tokens, Answer(request));
}

TEST(EnginePaused, NobodyWithThatKeyIsSaid) {
  SimCluster cluster(MakeConfig(1));
  cluster.Start();
  EXPECT_FALSE(cluster.engine().SetPaused("none", true, cluster.now()));
}

TEST(EnginePaused, ItStillGivesWayAndItsAnswerIsAsAlone) {
  EngineConfig config = MakeConfig(2, 9);
  config.kv_watermark = 0;
  SimCluster cluster(config);
  cluster.Start();
  const SessionRequest older = MakeRequest("old", 40, 60);
  const SessionRequest newer = MakeRequest("new", 40, 60);
  const auto first = cluster.Submit(older);
  const auto second = cluster.Submit(newer);
  RunTo(&cluster, *second, 5);
  SetPaused(&cluster, newer, true);
  RunTo(&cluster, *first, older.max_tokens);
  EXPECT_EQ(cluster.Snapshot().counters.preemptions, 1u);
  EXPECT_EQ(first->tokens, Answer(older));
  cluster.Settle();
  EXPECT_LE(second->tokens.size(), 7u) << "one under way, and one when it was computed again";
  EXPECT_EQ(cluster.StateOf("new"), "paused");
  SetPaused(&cluster, newer, false);
  cluster.RunToEnd();
  EXPECT_EQ(second->tokens, Answer(newer));
  cluster.Settle();
  cluster.ExpectEmpty();
}

TEST(EnginePaused, ItsDeadlinePassesAndItMayBeCancelled) {
  for (const bool cancels : {false, true}) {
    SimCluster cluster(MakeConfig(2));
    cluster.Start();
    SessionRequest request = MakeRequest("r", 20, 30);
    request.deadline = cluster.now() + seconds(5);
    const auto sink = cluster.Submit(request);
    RunTo(&cluster, *sink, 2);
    SetPaused(&cluster, request, true);
    cluster.Settle();
    ASSERT_FALSE(sink->ended());
    if (cancels) {
      EXPECT_TRUE(cluster.engine().Cancel(request.key, absl::OkStatus(), cluster.now()));
      EXPECT_EQ(sink->done->reason, "cancelled");
    } else {
      EXPECT_LE(*cluster.engine().NextWake(), *request.deadline);
      cluster.Advance(seconds(5));
      ASSERT_TRUE(sink->failed.has_value());
      EXPECT_EQ(ReasonOf(*sink->failed), "DEADLINE_EXCEEDED");
    }
    cluster.Settle();
    cluster.ExpectEmpty();
  }
}

TEST(EnginePaused, WhoMayHaveBrokenAStageHoldsUpNobody) {
  SimCluster cluster(MakeConfig(2, 200));
  cluster.Start();
  std::vector<SessionRequest> requests;
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(MakeRequest("r" + std::to_string(i), 10, 30));
    sinks.push_back(cluster.Submit(requests.back()));
  }
  for (const auto& sink : sinks) {
    RunTo(&cluster, *sink, 3);
  }
  while (cluster.links[1].empty()) {
    cluster.Deliver(0);
    cluster.Deliver(2);
  }
  SetPaused(&cluster, requests[0], true);
  SetPaused(&cluster, requests[1], true);
  const size_t had = sinks[0]->tokens.size();
  cluster.links[0].clear();
  cluster.links[1].clear();
  cluster.BreakLink();
  cluster.Settle();
  for (const size_t i : {2u, 3u}) {
    ASSERT_TRUE(sinks[i]->done.has_value());
    EXPECT_EQ(sinks[i]->tokens, Answer(requests[i]));
  }
  for (const size_t i : {0u, 1u}) {
    EXPECT_LE(sinks[i]->tokens.size(), had + 1);
    EXPECT_EQ(cluster.StateOf(requests[i].request_id), "paused");
    SetPaused(&cluster, requests[i], false);
  }
  cluster.RunToEnd();
  for (const size_t i : {0u, 1u}) {
    EXPECT_EQ(sinks[i]->tokens, Answer(requests[i]));
  }
}

constexpr nanoseconds kPatience = milliseconds(500);

// Two sessions that fill a pool of 12 pages between them, and wait for their readers.
class EngineUnread : public ::testing::Test {
 protected:
  void Start(const EngineConfig& config, bool guaranteed = false) {
    cluster_ = std::make_unique<SimCluster>(config);
    cluster_->Start();
    for (int i = 0; i < 2; ++i) {
      slow_.push_back(MakeRequest("slow" + std::to_string(i), 70, 20));
      slow_.back().guaranteed = guaranteed;
      sinks_.push_back(cluster_->Submit(slow_.back()));
      RunTo(cluster_.get(), *sinks_.back(), 2);
      SetPaused(cluster_.get(), slow_.back(), true);
    }
    cluster_->Settle();
  }
  static EngineConfig Config(uint32_t stages = 2) {
    EngineConfig config = MakeConfig(stages, 12);
    config.kv_watermark = 0;
    return config;
  }
  void Pass(nanoseconds time) {
    cluster_->Advance(time);
    cluster_->Settle();
  }
  std::string States() { return cluster_->StateOf("slow0") + " " + cluster_->StateOf("slow1"); }
  void ReadOnAndExpectAll() {
    for (const SessionRequest& request : slow_) SetPaused(cluster_.get(), request, false);
    cluster_->RunToEnd();
    for (size_t i = 0; i < slow_.size(); ++i) EXPECT_EQ(sinks_[i]->tokens, Answer(slow_[i]));
    cluster_->Settle();
    cluster_->ExpectEmpty();
  }

  std::unique_ptr<SimCluster> cluster_;
  std::vector<SessionRequest> slow_;
  std::vector<std::shared_ptr<SinkRecord>> sinks_;
};

TEST_F(EngineUnread, WhoDoesNotReadGivesWayToWhoWaitsAndGoesOnWhenItReads) {
  for (uint32_t stages = 1; stages <= 3; ++stages) {
    slow_.clear();
    sinks_.clear();
    Start(Config(stages));
    Pass(seconds(60));
    EXPECT_EQ(cluster_->Snapshot().counters.preemptions, 0u) << "nobody waits";
    const SessionRequest other = MakeRequest("other", 60, 40);
    const auto sink = cluster_->Submit(other);
    cluster_->Settle();
    ASSERT_TRUE(sink->done.has_value());
    EXPECT_EQ(sink->tokens, Answer(other));
    EXPECT_EQ(States(), "paused paused");
    EXPECT_LE(sinks_[0]->tokens.size(), 4u) << "it is not computed again while it is not read";
    Pass(seconds(60));
    EXPECT_EQ(cluster_->Snapshot().kv[0].live, 5u) << "of the one that needed not give way";
    ReadOnAndExpectAll();
  }
}

TEST_F(EngineUnread, AReaderThatIsBehindForAMomentKeepsItsMemory) {
  Start(Config());
  const auto sink = cluster_->Submit(MakeRequest("other", 60, 60));
  cluster_->Settle();
  EXPECT_EQ(cluster_->StateOf("other"), "queued");
  Pass(kPatience - milliseconds(1));
  EXPECT_EQ(cluster_->StateOf("other"), "queued");
  EXPECT_EQ(*cluster_->engine().NextWake(), cluster_->now() + milliseconds(1));
  Pass(milliseconds(1));
  EXPECT_TRUE(sink->done.has_value());
  ReadOnAndExpectAll();
}

TEST_F(EngineUnread, AGuaranteedOneKeepsItsMemory) {
  Start(Config(), /*guaranteed=*/true);
  const auto sink = cluster_->Submit(MakeRequest("other", 60, 60));
  Pass(seconds(60));
  EXPECT_EQ(cluster_->StateOf("other"), "queued");
  ReadOnAndExpectAll();
  EXPECT_TRUE(sink->done.has_value());
}

TEST_F(EngineUnread, TheirPlacesAreForOthersToo) {
  EngineConfig config = MakeConfig(2, 200);
  config.max_sessions = 2;
  Start(config);
  Pass(kPatience);
  const SessionRequest other = MakeRequest("other", 10, 10);
  const auto sink = cluster_->Submit(other);
  cluster_->Settle();
  EXPECT_TRUE(sink->done.has_value());
  EXPECT_EQ(States(), "paused paused");
  ReadOnAndExpectAll();
}

TEST_F(EngineUnread, AnOlderOneGivesWayToWhoGrows) {
  EngineConfig config = Config();
  cluster_ = std::make_unique<SimCluster>(config);
  Start(config);
  // Fits beside one of them, and grows beyond that.
  cluster_->engine().Cancel(slow_[1].key, absl::OkStatus(), cluster_->now());
  slow_.pop_back();
  const SessionRequest other = MakeRequest("other", 40, 100);
  const auto sink = cluster_->Submit(other);
  Pass(kPatience);
  EXPECT_TRUE(sink->done.has_value());
  EXPECT_EQ(sink->tokens, Answer(other));
  EXPECT_EQ(cluster_->Snapshot().counters.preemptions, 1u);
  EXPECT_EQ(cluster_->StateOf("slow0"), "paused");
  ReadOnAndExpectAll();
}

TEST_F(EngineUnread, OfTooManyTheLongestUnreadFails) {
  EngineConfig config = Config();
  config.max_queued_requests = 1;
  Start(config);
  const SessionRequest other = MakeRequest("other", 100, 90);
  const auto sink = cluster_->Submit(other);
  Pass(kPatience);
  EXPECT_EQ(sink->tokens, Answer(other));
  ASSERT_TRUE(sinks_[0]->failed.has_value());
  EXPECT_EQ(ReasonOf(*sinks_[0]->failed), "SLOW_READER");
  EXPECT_EQ(cluster_->StateOf("slow1"), "paused");
  sinks_.erase(sinks_.begin());
  slow_.erase(slow_.begin());
  ReadOnAndExpectAll();
}

TEST_F(EngineUnread, OneThatGaveWayMayBeCancelledAndEndsAtItsDeadline) {
  for (const bool cancels : {false, true}) {
    slow_.clear();
    sinks_.clear();
    Start(Config());
    SessionRequest late = MakeRequest("late", 10, 10);
    SetPaused(cluster_.get(), slow_[0], false);
    cluster_->engine().Cancel(slow_[0].key, absl::OkStatus(), cluster_->now());
    late = MakeRequest("late", 70, 20);
    late.deadline = cluster_->now() + seconds(9);
    const auto unread = cluster_->Submit(late);
    RunTo(cluster_.get(), *unread, 2);
    SetPaused(cluster_.get(), late, true);
    Pass(seconds(1));
    const auto sink = cluster_->Submit(MakeRequest("other", 100, 90));
    cluster_->Settle();
    EXPECT_TRUE(sink->done.has_value());
    EXPECT_EQ(cluster_->StateOf("late"), "paused");
    if (cancels) {
      EXPECT_TRUE(cluster_->engine().Cancel(late.key, absl::OkStatus(), cluster_->now()));
      EXPECT_EQ(unread->done->reason, "cancelled");
    } else {
      Pass(seconds(9));
      ASSERT_TRUE(unread->failed.has_value());
      EXPECT_EQ(ReasonOf(*unread->failed), "DEADLINE_EXCEEDED");
    }
    slow_.erase(slow_.begin());
    sinks_.erase(sinks_.begin());
    ReadOnAndExpectAll();
  }
}

}  // namespace
}  // namespace strata
