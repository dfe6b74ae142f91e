// Item errors, lost steps, fences and restarts.
#include <gtest/gtest.h>

#include "common/limits.h"
#include "common/status.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

using std::chrono::seconds;

std::vector<uint32_t> Answer(const SessionRequest& request, uint32_t tokens) {
  return OracleAnswer(request.prompt, tokens, 97);
}

void Reject(v1::StepItem* item, absl::StatusCode code, const std::string& reason) {
  *item->mutable_error() = Error(code, reason, "made up").Detail();
}

TEST(EngineFault, ALostSequenceIsReplayedFromItsTokens) {
  for (uint32_t stage = 0; stage < 3; ++stage) {
    SimCluster cluster(MakeConfig(3));
    cluster.Start();
    cluster.Settle();
    const SessionRequest request = MakeRequest("r1", 40, 20);
    const auto sink = cluster.Submit(request);
    int rejected = 0;
    cluster.fake(stage).before_item = [&](v1::StepItem* item) {
      if (item->position() == 45 && rejected++ == 0) {
        Reject(item, absl::StatusCode::kFailedPrecondition, "FINGERPRINT_MISMATCH");
      }
    };
    cluster.RunToEnd();
    cluster.Settle();
    EXPECT_EQ(sink->tokens, Answer(request, 20)) << "each token once, and the right ones";
    EXPECT_EQ(rejected, 1);
    EXPECT_EQ(cluster.Snapshot().counters.replays, 1u);
    EXPECT_EQ(cluster.Snapshot().counters.faults, 0u) << "no fence for one request";
    EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 0u);
    cluster.ExpectEmpty();
  }
}

TEST(EngineFault, RowsAreDeliveredOnceOverAReplay) {
  EngineConfig config = MakeConfig(2);
  config.max_batch_tokens = 8;
  for (const bool logits : {false, true}) {
    SimCluster cluster(config);
    cluster.Start();
    SessionRequest request = MakeRequest("r1", 40, 6);
    request.return_logits = logits;
    request.prompt_logprobs = !logits;
    const auto sink = cluster.Submit(request);
    int rejected = 0;
    cluster.fake(1).before_item = [&](v1::StepItem* item) {
      if ((item->position() == 24 && rejected == 0) || (item->position() == 42 && rejected == 1)) {
        ++rejected;
        Reject(item, absl::StatusCode::kNotFound, "SEQUENCE_NOT_FOUND");
      }
    };
    cluster.RunToEnd();
    EXPECT_EQ(rejected, 2);
    EXPECT_EQ(sink->tokens, Answer(request, 6));
    EXPECT_EQ(sink->next_row, logits ? 45u : 39u);
  }
}

TEST(EngineFault, ThreeReplaysThenTheErrorAsTheStageReportedIt) {
  SimCluster cluster(MakeConfig(3));
  cluster.Start();
  const auto sink = cluster.Submit(MakeRequest("r1", 10, 5));
  const SessionRequest staying = MakeRequest("r2", 10, 5);
  const auto other = cluster.Submit(staying);
  std::vector<uint64_t> generations;
  cluster.fake(1).before_item = [&](v1::StepItem* item) {
    if (item->sequence().request_id() == "r1") {
      generations.push_back(item->sequence().generation());
      Reject(item, absl::StatusCode::kFailedPrecondition, "POSITION_MISMATCH");
    }
  };
  cluster.RunToEnd();
  cluster.Settle();
  ASSERT_TRUE(sink->failed.has_value());
  EXPECT_EQ(generations.size(), 1u + kMaxReplays);
  EXPECT_TRUE(std::is_sorted(generations.begin(), generations.end()));
  EXPECT_EQ(ReasonOf(*sink->failed), "POSITION_MISMATCH");
  const v1::ErrorDetail detail = DetailOf(*sink->failed);
  EXPECT_EQ(detail.node(), "node1");
  EXPECT_EQ(detail.request_id(), "r1");
  EXPECT_EQ(detail.facts().at("stage"), "1");
  EXPECT_EQ(other->tokens, Answer(staying, 5));
  cluster.ExpectEmpty();
}

TEST(EngineFault, AnErrorOfOneRequestFailsItAlone) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (int i = 0; i < 6; ++i) {
    sinks.push_back(cluster.Submit(MakeRequest("r" + std::to_string(i), 30, 10)));
  }
  cluster.fake(1).before_item = [&](v1::StepItem* item) {
    if (item->sequence().request_id() == "r3" && item->position() == 33) {
      Reject(item, absl::StatusCode::kInternal, "NON_FINITE");
    }
  };
  cluster.RunToEnd();
  cluster.Settle();
  for (int i = 0; i < 6; ++i) {
    if (i == 3) {
      EXPECT_EQ(ReasonOf(sinks[i]->failed.value()), "NON_FINITE");
      EXPECT_EQ(sinks[i]->tokens.size(), 4u);
    } else {
      EXPECT_EQ(sinks[i]->tokens, Answer(MakeRequest("r" + std::to_string(i), 30, 10), 10));
    }
  }
  EXPECT_EQ(cluster.Snapshot().counters.replays, 0u);
  cluster.ExpectEmpty();
}

TEST(EngineFault, TheFirstErrorOfASequenceIsTheOneReported) {
  EngineConfig config = MakeConfig(2);
  config.max_batch_tokens = 10;
  SimCluster cluster(config);
  cluster.Start();
  const auto sink = cluster.Submit(MakeRequest("r1", 50, 5));
  cluster.fake(1).before_item = [&](v1::StepItem* item) {
    if (item->position() == 0) {
      Reject(item, absl::StatusCode::kInternal, "FIRST");
    }
  };
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(ReasonOf(sink->failed.value()), "FIRST") << "later chunks are NOT_FOUND there";
  cluster.ExpectEmpty();
}

TEST(EngineFault, WhatFollowsARejectedItemIsNotCommitted) {
  EngineConfig config = MakeConfig(1);
  config.max_batch_tokens = 10;
  SimCluster cluster(config);
  cluster.Start();
  cluster.Settle();
  const SessionRequest request = MakeRequest("r1", 15, 5);
  const auto sink = cluster.Submit(request);
  // The stage keeps the rows, says that they failed, and computes the chunk after them.
  int seen = 0;
  ASSERT_TRUE(cluster.Deliver(0));
  ASSERT_EQ(cluster.results.size(), 1u);
  v1::ItemResult* item = cluster.results[0].header.mutable_items(0);
  *item->mutable_error() =
      Error(absl::StatusCode::kFailedPrecondition, "FINGERPRINT_MISMATCH", "made up").Detail();
  cluster.fake(0).before_item = [&](v1::StepItem*) { ++seen; };
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_GT(seen, 1);
  EXPECT_EQ(sink->tokens, Answer(request, 5));
  EXPECT_EQ(cluster.Snapshot().counters.replays, 1u);
  EXPECT_EQ(cluster.Snapshot().counters.faults, 0u);
  cluster.ExpectEmpty();
}

TEST(EngineFault, ABrokenLinkIsFencedAndSessionsGoOn) {
  for (int moment = 0; moment < 80; ++moment) {
    EngineConfig config = MakeConfig(3);
    config.max_batch_tokens = 16;
    SimCluster cluster(config);
    std::vector<SessionRequest> requests;
    std::vector<std::shared_ptr<SinkRecord>> sinks;
    for (int i = 0; i < 4; ++i) {
      requests.push_back(MakeRequest("r" + std::to_string(i), 10 + 15 * i, 6 + i));
      sinks.push_back(cluster.Submit(requests.back()));
    }
    cluster.Start();
    for (int i = 0; i < moment; ++i) {
      cluster.AcknowledgeFence();
      cluster.Deliver(static_cast<uint32_t>(i) % 4);
    }
    const uint64_t epoch = cluster.engine().epoch();
    cluster.engine().OnLinkFault(epoch, moment % 2 == 0 ? BrokenLink() : absl::OkStatus(),
                                 cluster.now());
    EXPECT_EQ(cluster.engine().epoch(), epoch + 1);
    // The other end reports it as well.
    cluster.engine().OnLinkFault(epoch, BrokenLink(), cluster.now());
    EXPECT_EQ(cluster.engine().epoch(), epoch + 1);
    cluster.ExpectSums();
    cluster.RunToEnd();
    cluster.Settle();
    for (size_t i = 0; i < sinks.size(); ++i) {
      ASSERT_TRUE(sinks[i]->done.has_value()) << "moment " << moment;
      EXPECT_EQ(sinks[i]->tokens, Answer(requests[i], requests[i].max_tokens));
    }
    EXPECT_EQ(cluster.Snapshot().counters.replays, 0u) << "what was committed is kept";
    EXPECT_EQ(cluster.Snapshot().counters.rebuilds, 0u);
    EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 0u);
    cluster.ExpectEmpty();
  }
}

TEST(EngineFault, TheFirstFrameOfAnEpochTruncatesLiveSequences) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  cluster.Submit(MakeRequest("live", 20, 30));
  cluster.Submit(MakeRequest("gone", 20, 30));
  for (int i = 0; i < 12; ++i) {
    cluster.Deliver(static_cast<uint32_t>(i) % 3);
  }
  cluster.engine().Cancel("scope/gone", absl::OkStatus(), cluster.now());
  const size_t before = cluster.sent.size();
  cluster.BreakLink();
  const auto unborn = cluster.Submit(MakeRequest("unborn", 20, 3));
  cluster.AcknowledgeFence();
  ASSERT_EQ(cluster.sent.size(), before + 1) << "nothing else before its result";
  const v1::StepFrame& frame = cluster.sent.back();
  EXPECT_TRUE(frame.resync());
  EXPECT_EQ(frame.step(), 1u);
  EXPECT_EQ(frame.committed_step(), 0u);
  EXPECT_EQ(frame.items_size(), 0);
  ASSERT_EQ(frame.commands_size(), 1);
  EXPECT_EQ(frame.commands(0).truncate().sequence().request_id(), "live");
  EXPECT_GE(frame.commands(0).truncate().length(), 20u);
  cluster.RunToEnd();
  EXPECT_TRUE(unborn->done.has_value());
}

TEST(EngineFault, ARestartedStageIsRebuiltFromTokens) {
  for (uint32_t stage = 0; stage < 3; ++stage) {
    SimCluster cluster(MakeConfig(3));
    cluster.Start();
    cluster.Settle();
    std::vector<SessionRequest> requests;
    std::vector<std::shared_ptr<SinkRecord>> sinks;
    for (int i = 0; i < 4; ++i) {
      requests.push_back(MakeRequest("r" + std::to_string(i), 20 + 5 * i, 12));
      sinks.push_back(cluster.Submit(requests.back()));
    }
    for (int i = 0; i < 40; ++i) {
      cluster.Deliver(static_cast<uint32_t>(i) % 4);
    }
    cluster.stage(stage).Restart();
    cluster.BreakLink();
    cluster.RunToEnd();
    cluster.Settle();
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_EQ(sinks[i]->tokens, Answer(requests[i], 12));
    }
    EXPECT_EQ(cluster.Snapshot().counters.rebuilds, 4u);
    EXPECT_EQ(cluster.Snapshot().counters.replays, 0u);
    cluster.ExpectEmpty();
  }
}

TEST(EngineFault, AStepWithoutResultTimesOutFromTheLastResult) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const SessionRequest request = MakeRequest("r1", 20, 5);
  const auto sink = cluster.Submit(request);
  const uint64_t epoch = cluster.engine().epoch();
  EXPECT_EQ(cluster.engine().NextWake(), cluster.now() + seconds(10));
  cluster.Advance(seconds(9));
  cluster.Settle();
  EXPECT_TRUE(sink->done.has_value()) << "in time";
  const auto late = cluster.Submit(request);
  cluster.Advance(seconds(9));
  cluster.Deliver(0), cluster.Deliver(1), cluster.Deliver(2);
  cluster.Advance(seconds(9));
  EXPECT_EQ(cluster.engine().epoch(), epoch) << "counted from the last result";
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.engine().epoch(), epoch + 1);
  EXPECT_EQ(cluster.Snapshot().state, PipelineState::kFencing);
  ASSERT_EQ(cluster.Snapshot().problems.size(), 1u);
  EXPECT_NE(cluster.Snapshot().problems[0].what.find("step timeout"), std::string::npos);
  cluster.RunToEnd();
  EXPECT_EQ(late->tokens, Answer(request, 5));
  EXPECT_TRUE(cluster.Snapshot().problems.empty());
}

TEST(EngineFault, AFenceThatIsNotAcknowledgedFailsTheSessionsByNode) {
  SimCluster cluster(MakeConfig(3));
  cluster.Start();
  cluster.Settle();
  const auto sink = cluster.Submit(MakeRequest("r1", 20, 5));
  cluster.BreakLink();
  const auto queued = cluster.Submit(MakeRequest("r2", 20, 5));
  cluster.unfenced = {"node1", "node2"};
  cluster.Advance(seconds(10));
  EXPECT_FALSE(sink->ended());
  cluster.Advance(milliseconds(800));
  for (const auto& failed : {sink, queued}) {
    ASSERT_TRUE(failed->failed.has_value());
    EXPECT_TRUE(absl::IsUnavailable(*failed->failed));
    EXPECT_EQ(ReasonOf(*failed->failed), "PIPELINE_DOWN");
    EXPECT_EQ(DetailOf(*failed->failed).node(), "node2");
    EXPECT_NE(failed->failed->message().find("\"node2\""), absl::string_view::npos);
  }
  EXPECT_EQ(cluster.Snapshot().state, PipelineState::kDown);
  auto refused = std::make_shared<SinkRecord>();
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(MakeRequest("r3", 5, 5), refused)), "PIPELINE_DOWN");

  EXPECT_NE(cluster.Snapshot().problems.at(0).what.find("\"node1\", \"node2\""), std::string::npos);

  // It asks again, and a fence that succeeds brings the pipeline back.
  cluster.unfenced.clear();
  cluster.pending_fence.reset();
  for (int i = 0; i < 20 && !cluster.pending_fence.has_value(); ++i) {
    cluster.Advance(seconds(1));
  }
  ASSERT_TRUE(cluster.pending_fence.has_value());
  cluster.Settle();
  EXPECT_EQ(cluster.Snapshot().state, PipelineState::kRunning);
  cluster.ExpectEmpty();
  const auto next = cluster.Submit(MakeRequest("r3", 5, 5));
  cluster.RunToEnd();
  EXPECT_TRUE(next->done.has_value());
}

TEST(EngineFault, WhoWaitsOnAStalledStageIsToldSoonAfterTheStepTimeout) {
  for (const bool acknowledges : {false, true}) {
    SimCluster cluster(MakeConfig(2));
    cluster.Start();
    cluster.Settle();
    const auto sink = cluster.Submit(MakeRequest("r1", 20, 5));
    const auto begun = cluster.now();
    cluster.unfenced = {"node1"};
    while (!sink->ended() && cluster.now() < begun + seconds(60)) {
      cluster.Advance(milliseconds(100));
      if (acknowledges) {
        cluster.AcknowledgeFence();  // And stalls again: frames go nowhere.
      }
    }
    ASSERT_TRUE(sink->failed.has_value());
    EXPECT_EQ(ReasonOf(*sink->failed), "PIPELINE_DOWN");
    EXPECT_EQ(cluster.now() - begun, seconds(10) + milliseconds(800));
  }
}

TEST(EngineFault, ABrokenLinkHasTheWholeStepTimeoutToBeMended) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const SessionRequest request = MakeRequest("r1", 20, 5);
  const auto sink = cluster.Submit(request);
  cluster.BreakLink();
  cluster.Advance(seconds(9));
  cluster.RunToEnd();
  EXPECT_EQ(sink->tokens, Answer(request, 5));
}

TEST(EngineFault, AnOldFenceCountsForNothing) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const uint64_t epoch = cluster.engine().epoch();
  cluster.engine().OnFenced(epoch, cluster.now());
  cluster.engine().OnLinkFault(epoch, BrokenLink(), cluster.now());
  const size_t sent = cluster.sent.size();
  cluster.engine().OnFenced(epoch, cluster.now());
  EXPECT_EQ(cluster.sent.size(), sent);
  EXPECT_EQ(cluster.Snapshot().state, PipelineState::kFencing);
}

TEST(EngineFault, FaultsInARowBackOffAndThenFailTheSessions) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const auto sink = cluster.Submit(MakeRequest("r1", 20, 5));
  int faults = 0;
  while (!sink->ended() && faults < 10) {
    cluster.BreakLink();
    ++faults;
    while (!cluster.pending_fence.has_value()) {
      ASSERT_EQ(cluster.Snapshot().state,
                sink->ended() ? PipelineState::kDown : PipelineState::kBackoff);
      cluster.Advance(milliseconds(10));
    }
    cluster.AcknowledgeFence();
  }
  EXPECT_EQ(faults, 4);
  EXPECT_TRUE(absl::IsUnavailable(sink->failed.value()));
  cluster.Settle();
  EXPECT_EQ(cluster.Snapshot().state, PipelineState::kRunning);
}

TEST(EngineFault, AStageThatMiscountsPagesIsQuarantined) {
  SimCluster cluster(MakeConfig(3));
  cluster.Start();
  cluster.Settle();
  const SessionRequest request = MakeRequest("r1", 40, 20);
  const auto sink = cluster.Submit(request);
  for (int i = 0; i < 8; ++i) {
    cluster.Deliver(static_cast<uint32_t>(i) % 4);
  }
  cluster.fake(1).leaked_pages = 1;
  const uint64_t epoch = cluster.engine().epoch();
  while (cluster.engine().epoch() == epoch) {
    bool moved = false;
    for (uint32_t stage = 0; stage <= 3; ++stage) {
      moved = cluster.Deliver(stage) || moved;
    }
    ASSERT_TRUE(moved);
  }
  EXPECT_EQ(cluster.Snapshot().counters.ledger_mismatches, 1u);
  cluster.fake(1).leaked_pages = 0;
  cluster.RunToEnd();
  EXPECT_EQ(sink->tokens, Answer(request, 20));
  ASSERT_EQ(cluster.Snapshot().problems.size(), 1u) << "it is told, and stays told";
  EXPECT_NE(cluster.Snapshot().problems[0].what.find("stage 1 on node \"node1\""),
            std::string::npos);
}

TEST(EngineFault, AStageThatKeepsMiscountingEndsInTypedErrors) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  cluster.fake(0).leaked_pages = 2;
  const auto sink = cluster.Submit(MakeRequest("r1", 40, 20));
  cluster.RunToEnd();
  EXPECT_EQ(ReasonOf(sink->failed.value()), "PIPELINE_DOWN");
  EXPECT_NE(sink->failed->message().find("KV pages"), absl::string_view::npos);
}

TEST(EngineFault, AStageThatForgotASequenceSilentlyIsFound) {
  SimCluster cluster(MakeConfig(3));
  cluster.Start();
  cluster.Settle();
  const SessionRequest request = MakeRequest("r1", 40, 20);
  const auto sink = cluster.Submit(request);
  for (int i = 0; i < 12; ++i) {
    cluster.Deliver(static_cast<uint32_t>(i) % 4);
  }
  cluster.fake(1).Forget();
  cluster.RunToEnd();
  cluster.Settle();
  EXPECT_EQ(sink->tokens, Answer(request, 20));
  cluster.ExpectEmpty();
}

TEST(EngineFault, DuplicateAndOldResultsAreDiscardedAndCounted) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const SessionRequest request = MakeRequest("r1", 20, 10);
  const auto sink = cluster.Submit(request);
  std::vector<ResultMessage> old;
  for (int i = 0; i < 200 && cluster.engine().live_sessions() > 0; ++i) {
    cluster.Deliver(static_cast<uint32_t>(i) % 2);
    if (!cluster.results.empty()) {
      old.push_back(cluster.results.front());
      cluster.Deliver(2);
      for (const ResultMessage& result : old) {
        cluster.engine().OnResult(result, cluster.now());
      }
    }
    if (i == 9) {
      cluster.BreakLink();
      for (const ResultMessage& result : old) {
        cluster.engine().OnResult(result, cluster.now());
      }
      cluster.AcknowledgeFence();
    }
  }
  EXPECT_EQ(sink->tokens, Answer(request, 10));
  EXPECT_GT(cluster.Snapshot().counters.results_discarded, 50u);
  EXPECT_EQ(cluster.Snapshot().counters.faults, 1u);
}

TEST(EngineFault, ResultsOfAnotherDeploymentAreDiscarded) {
  SimCluster cluster(MakeConfig(1));
  cluster.Start();
  cluster.Settle();
  const auto sink = cluster.Submit(MakeRequest("r1", 20, 2));
  cluster.Deliver(0);
  ResultMessage other = cluster.results.front();
  other.header.set_deployment(8);
  cluster.engine().OnResult(other, cluster.now());
  EXPECT_EQ(cluster.Snapshot().counters.results_discarded, 1u);
  cluster.RunToEnd();
  EXPECT_TRUE(sink->done.has_value());
}

TEST(EngineFault, AWorkersErrorTextIsBounded) {
  SimCluster cluster(MakeConfig(1));
  cluster.Start();
  const auto sink = cluster.Submit(MakeRequest("r1", 20, 2));
  cluster.fake(0).before_item = [](v1::StepItem* item) {
    std::string text;
    for (int i = 0; i < 100000; ++i) {
      text += "\xC3\xA9";
    }
    *item->mutable_error() = Error(absl::StatusCode::kInternal, "LONG", text).Detail();
  };
  cluster.RunToEnd();
  EXPECT_LE(sink->failed.value().message().size(), 1024u);
  EXPECT_EQ(ReasonOf(*sink->failed), "LONG");
}

}  // namespace
}  // namespace strata
