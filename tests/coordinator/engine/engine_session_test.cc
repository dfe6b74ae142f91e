// Sessions on stages that do not fail.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/limits.h"
#include "common/status.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

using std::chrono::seconds;

std::vector<uint32_t> Answer(const SessionRequest& request, uint32_t tokens) {
  return OracleAnswer(request.prompt, tokens, 97);
}

TEST(EngineSession, GeneratesWhatTheOracleSays) {
  for (uint32_t stages = 1; stages <= 4; ++stages) {
    SimCluster cluster(MakeConfig(stages));
    cluster.Start();
    const SessionRequest request = MakeRequest("r1", 20, 12);
    const auto sink = cluster.Submit(request);
    cluster.RunToEnd();
    ASSERT_TRUE(sink->done.has_value());
    EXPECT_EQ(sink->done->reason, "length");
    EXPECT_EQ(sink->done->prompt_tokens, 20u);
    EXPECT_EQ(sink->done->completion_tokens, 12u);
    EXPECT_EQ(sink->tokens, Answer(request, 12));
    cluster.Settle();
    cluster.ExpectEmpty();
  }
}

TEST(EngineSession, NothingIsSentBeforeTheFenceIsAcknowledged) {
  SimCluster cluster(MakeConfig(2));
  const auto sink = cluster.Submit(MakeRequest("r1", 5, 2));
  cluster.Start();
  EXPECT_TRUE(cluster.sent.empty());
  EXPECT_EQ(cluster.Snapshot().state, PipelineState::kFencing);
  EXPECT_EQ(cluster.Snapshot().sessions.at(0).state, "queued");
  cluster.RunToEnd();
  EXPECT_TRUE(sink->done.has_value());
  EXPECT_TRUE(cluster.sent.at(0).resync());
  EXPECT_EQ(cluster.sent.at(0).epoch(), 3u);
}

TEST(EngineSession, ManySessionsEachAsAlone) {
  EngineConfig config = MakeConfig(3, 200);
  config.max_batch_tokens = 64;
  SimCluster cluster(config);
  cluster.Start();
  std::vector<SessionRequest> requests;
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (uint32_t i = 0; i < 40; ++i) {
    requests.push_back(MakeRequest("r" + std::to_string(i), 1 + i * 7 % 90, 1 + i % 17));
    sinks.push_back(cluster.Submit(requests.back()));
  }
  cluster.RunToEnd();
  for (size_t i = 0; i < sinks.size(); ++i) {
    ASSERT_TRUE(sinks[i]->done.has_value());
    EXPECT_EQ(sinks[i]->tokens, Answer(requests[i], requests[i].max_tokens));
  }
  cluster.Settle();
  cluster.ExpectEmpty();
  EXPECT_EQ(cluster.Snapshot().counters.done, 40u);
}

TEST(EngineSession, ChunksChangeNothing) {
  for (const uint32_t rows : {1u, 7u, 64u, 512u}) {
    EngineConfig config = MakeConfig(2);
    config.max_batch_tokens = rows;
    SimCluster cluster(config);
    cluster.Start();
    const SessionRequest request = MakeRequest("r1", 150, 5);
    const auto sink = cluster.Submit(request);
    cluster.RunToEnd();
    EXPECT_EQ(sink->tokens, Answer(request, 5)) << rows;
  }
}

TEST(EngineSession, ChunksOfOnePromptAreInFlightTogether) {
  EngineConfig config = MakeConfig(3);
  config.max_batch_tokens = 20;
  SimCluster cluster(config);
  cluster.Start();
  cluster.Settle();
  cluster.Submit(MakeRequest("r1", 200, 1));
  EXPECT_EQ(cluster.links[0].size(), 4u) << "stages + 1 steps";
  EXPECT_EQ(cluster.Snapshot().steps_in_flight, 4u);
  cluster.RunToEnd();
}

TEST(EngineSession, NeverMoreThanStagesPlusOneStepsInFlight) {
  EngineConfig config = MakeConfig(2, 500);
  config.max_batch_tokens = 16;
  SimCluster cluster(config);
  cluster.Start();
  for (int i = 0; i < 30; ++i) {
    cluster.Submit(MakeRequest("r" + std::to_string(i), 60, 8));
  }
  uint32_t most = 0;
  for (int i = 0; i < 100000 && cluster.engine().live_sessions() > 0; ++i) {
    most = std::max(most, cluster.Snapshot().steps_in_flight);
    cluster.AcknowledgeFence();
    cluster.Deliver(static_cast<uint32_t>(i) % 3);
  }
  EXPECT_EQ(cluster.engine().live_sessions(), 0u);
  EXPECT_EQ(most, 3u);
}

TEST(EngineSession, OneTokenOfASessionIsInFlightAtATime) {
  SimCluster cluster(MakeConfig(4));
  cluster.Start();
  cluster.Submit(MakeRequest("r1", 3, 5));
  cluster.RunToEnd();
  uint32_t position = 0;
  for (const v1::StepFrame& frame : cluster.sent) {
    for (const v1::StepItem& item : frame.items()) {
      EXPECT_EQ(item.position(), position);
      position += static_cast<uint32_t>(item.token_ids_size());
      EXPECT_LT(frame.committed_step(), frame.step());
      EXPECT_EQ(frame.committed_step(), frame.step() - 1) << "one session: one step at a time";
    }
  }
  EXPECT_EQ(position, 3u + 5 - 1);
}

TEST(EngineSession, StopIdsEndTheAnswerAndBelongToIt) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  SessionRequest request = MakeRequest("r1", 10, 30);
  const std::vector<uint32_t> answer = Answer(request, 30);
  request.stop_ids = {answer[4]};
  const size_t at =
      static_cast<size_t>(std::find(answer.begin(), answer.end(), answer[4]) - answer.begin());
  const auto sink = cluster.Submit(request);
  SessionRequest ignoring = request;
  ignoring.key = ignoring.request_id = "r2";
  ignoring.ignore_eos = true;
  const auto other = cluster.Submit(ignoring);
  cluster.RunToEnd();
  EXPECT_EQ(sink->done.value().reason, "stop");
  EXPECT_EQ(sink->tokens, std::vector<uint32_t>(answer.begin(), answer.begin() + at + 1));
  EXPECT_EQ(other->tokens.size(), 30u);
}

TEST(EngineSession, TheSinkMayStop) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  auto sink = std::make_shared<SinkRecord>();
  sink->stop_after = 3;
  ASSERT_TRUE(cluster.TrySubmit(MakeRequest("r1", 10, 30), sink).ok());
  cluster.RunToEnd();
  EXPECT_EQ(sink->done.value().reason, "stop");
  EXPECT_EQ(sink->tokens.size(), 3u);
}

TEST(EngineSession, RowsOfLogitsCoverEveryPositionOnce) {
  EngineConfig config = MakeConfig(2);
  config.max_batch_tokens = 7;
  SimCluster cluster(config);
  cluster.Start();
  SessionRequest request = MakeRequest("r1", 30, 6);
  request.return_logits = true;
  const auto sink = cluster.Submit(request);
  cluster.RunToEnd();
  EXPECT_EQ(sink->next_row, 30u + 6 - 1);
  EXPECT_EQ(sink->logits.size(), 35u * 97);
}

TEST(EngineSession, LogitsAndPromptLogprobsComeTogether) {
  for (const uint32_t rows : {1u, 7u, 64u}) {
    EngineConfig config = MakeConfig(2);
    config.max_batch_tokens = rows;
    SimCluster cluster(config);
    cluster.Start();
    SessionRequest request = MakeRequest("r", 30, 6);
    request.return_logits = request.prompt_logprobs = true;
    const auto sink = cluster.Submit(request);
    cluster.RunToEnd();
    EXPECT_EQ(sink->logits.size(), 35u * 97) << rows;
    EXPECT_EQ(sink->prompt_logprobs.size(), 29u) << rows;
  }
}

TEST(EngineSession, PromptLogprobsCoverEveryTokenButTheFirst) {
  for (const uint32_t rows : {1u, 7u, 29u, 30u, 64u}) {
    EngineConfig config = MakeConfig(2);
    config.max_batch_tokens = rows;
    SimCluster cluster(config);
    cluster.Start();
    SessionRequest request = MakeRequest("r1", 30, 3);
    request.prompt_logprobs = true;
    const auto sink = cluster.Submit(request);
    cluster.RunToEnd();
    ASSERT_EQ(sink->prompt_logprobs.size(), 29u);
    for (size_t i = 0; i < 29; ++i) {
      EXPECT_EQ(sink->prompt_logprobs[i].token_id(), request.prompt[i + 1]);
    }
    EXPECT_EQ(sink->tokens, Answer(request, 3));
  }
}

TEST(EngineSession, CancelAtEveryMoment) {
  for (int moment = 0; moment < 60; ++moment) {
    EngineConfig config = MakeConfig(3, 12);
    config.max_batch_tokens = 16;
    SimCluster cluster(config);
    const SessionRequest staying = MakeRequest("stays", 40, 20);
    const auto sink = cluster.Submit(MakeRequest("goes", 60, 12));
    const auto other = cluster.Submit(staying);
    const auto queued = cluster.Submit(MakeRequest("queued", 100, 50));
    cluster.Start();
    for (int i = 0; i < moment; ++i) {
      cluster.AcknowledgeFence();
      cluster.Deliver(static_cast<uint32_t>(i) % 4);
    }
    const bool live = !sink->ended();
    EXPECT_EQ(cluster.engine().Cancel("scope/goes", absl::OkStatus(), cluster.now()), live);
    ASSERT_TRUE(sink->done.has_value());
    EXPECT_EQ(sink->done->reason, live ? "cancelled" : "length");
    EXPECT_FALSE(cluster.engine().Cancel("scope/goes", absl::OkStatus(), cluster.now()));
    // The id is free at once, and the new request is a new one.
    const SessionRequest again = MakeRequest("goes", 33, 4);
    const auto reused = cluster.Submit(again);
    cluster.ExpectSums();
    cluster.RunToEnd();
    cluster.Settle();
    EXPECT_EQ(other->tokens, Answer(staying, 20));
    EXPECT_EQ(reused->tokens, Answer(again, 4));
    EXPECT_EQ(queued->tokens.size(), 50u);
    EXPECT_EQ(cluster.Snapshot().counters.faults, 0u);
    cluster.ExpectEmpty();
  }
}

TEST(EngineSession, ACancelCostsNoMoreThanTheStepsUnderWay) {
  for (int moment = 0; moment < 60; ++moment) {
    EngineConfig config = MakeConfig(3);
    config.max_batch_tokens = 16;
    SimCluster cluster(config);
    const auto sink = cluster.Submit(MakeRequest("goes", 60, 12));
    const auto other = cluster.Submit(MakeRequest("stays", 40, 40));
    cluster.Start();
    for (int i = 0; i < moment; ++i) {
      cluster.AcknowledgeFence();
      cluster.Deliver(static_cast<uint32_t>(i) % 4);
    }
    const size_t sent = cluster.sent.size();
    if (!cluster.engine().Cancel("scope/goes", absl::OkStatus(), cluster.now())) {
      continue;
    }
    const size_t tokens = sink->tokens.size();
    cluster.RunToEnd();
    EXPECT_EQ(sink->tokens.size(), tokens) << "what was under way is nobody's";
    EXPECT_EQ(other->tokens.size(), 40u);
    bool has_begun = false, is_released = false;
    for (size_t i = 0; i < cluster.sent.size(); ++i) {
      const v1::StepFrame& frame = cluster.sent[i];
      for (const v1::StepItem& item : frame.items()) {
        if (item.sequence().request_id() == "scope/goes") {
          EXPECT_LT(i, sent) << "moment " << moment << ": rows of what was cancelled";
          has_begun = true;
        }
      }
      for (const v1::StepCommand& command : frame.commands()) {
        if (command.has_release() && command.release().sequence().request_id() == "scope/goes") {
          EXPECT_EQ(i, sent) << "moment " << moment << ": the next step has the release";
          is_released = true;
        }
      }
    }
    EXPECT_EQ(is_released, has_begun) << moment;
  }
}

TEST(EngineSession, PagesAreFencedUntilTheReleaseIsCommitted) {
  SimCluster cluster(MakeConfig(2, 8));
  cluster.Start();
  cluster.Settle();
  SessionRequest big = MakeRequest("big", 60, 60);
  big.guaranteed = true;
  cluster.Submit(big);
  cluster.Deliver(0);
  const auto waiting = cluster.Submit(MakeRequest("next", 60, 10));
  cluster.engine().Cancel("scope/big", absl::OkStatus(), cluster.now());
  EXPECT_EQ(cluster.Snapshot().kv[0].fenced, 8u);
  EXPECT_FALSE(waiting->started.has_value()) << "the Release was not even sent";
  cluster.Deliver(1);
  cluster.Deliver(2);  // The prefill's result; the Release goes out.
  cluster.Deliver(0);
  cluster.Deliver(1);
  EXPECT_FALSE(waiting->started.has_value()) << "the stages have released, the step is under way";
  EXPECT_EQ(cluster.Snapshot().kv[0].fenced, 8u);
  cluster.Deliver(2);
  EXPECT_TRUE(waiting->started.has_value());
  EXPECT_EQ(cluster.Snapshot().kv[0].fenced, 0u);
  cluster.RunToEnd();
}

TEST(EngineSession, DeadlinesEndQueuedAndRunningSessions) {
  SimCluster cluster(MakeConfig(2, 8));
  cluster.Start();
  cluster.Settle();
  SessionRequest running = MakeRequest("running", 60, 60);
  running.deadline = cluster.now() + seconds(2);
  SessionRequest queued = MakeRequest("queued", 60, 60);
  queued.deadline = cluster.now() + seconds(1);
  const auto first = cluster.Submit(running);
  const auto second = cluster.Submit(queued);
  EXPECT_EQ(cluster.engine().NextWake(), queued.deadline);
  cluster.Advance(seconds(1));
  EXPECT_EQ(ReasonOf(second->failed.value()), "DEADLINE_EXCEEDED");
  EXPECT_EQ(DetailOf(*second->failed).request_id(), "queued");
  EXPECT_FALSE(first->ended());
  cluster.Advance(seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(first->failed.value()));
  cluster.Settle();
  cluster.ExpectEmpty();
}

TEST(EngineSession, WhatCanNeverFitIsRefusedAtOnceWithBothNumbers) {
  EngineConfig config = MakeConfig(3, 20);
  config.stages[1].kv_pages = {10};
  SimCluster cluster(config);
  cluster.Start();
  auto sink = std::make_shared<SinkRecord>();
  const absl::Status pool = cluster.TrySubmit(MakeRequest("r1", 100, 61), sink);
  EXPECT_EQ(ReasonOf(pool), "KV_NEVER_FITS");
  EXPECT_EQ(DetailOf(pool).node(), "node1");
  EXPECT_EQ(DetailOf(pool).limit(), "kv_tokens=160");
  EXPECT_EQ(DetailOf(pool).facts().at("asked_tokens"), "161");
  EXPECT_EQ(DetailOf(pool).facts().at("limit_tokens"), "160");
  const absl::Status context = cluster.TrySubmit(MakeRequest("r2", 500, 13), sink);
  EXPECT_EQ(ReasonOf(context), "CONTEXT_EXCEEDED");
  EXPECT_EQ(DetailOf(context).facts().at("asked_tokens"), "513");
  EXPECT_NE(DetailOf(context).hint().find("larger --context"), std::string::npos);
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(MakeRequest("r3", 160, 0), sink)), "KV_NEVER_FITS");
  EXPECT_FALSE(sink->ended());
  EXPECT_TRUE(cluster.TrySubmit(MakeRequest("r4", 100, 60), sink).ok());
  cluster.RunToEnd();
  EXPECT_EQ(sink->tokens.size(), 60u);
}

// A hint leads somewhere: no larger context is named where the model has none.
TEST(EngineSession, TheHintOfARequestThatIsTooLongKnowsTheModelsContext) {
  const auto hint_of = [](uint32_t model_context) {
    EngineConfig config = MakeConfig(1, 100);
    config.model_context = model_context;
    SimCluster cluster(config);
    cluster.Start();
    return DetailOf(cluster.TrySubmit(MakeRequest("r", 500, 13), std::make_shared<SinkRecord>()))
        .hint();
  };
  EXPECT_NE(hint_of(4096).find("larger --context (at most 4096)"), std::string::npos);
  EXPECT_EQ(hint_of(MakeConfig(1, 100).context).find("--context"), std::string::npos);
}

TEST(EngineSession, MinTokensRaiseADefaultAndAreRefusedWhenTheyCanNeverFit) {
  SimCluster cluster(MakeConfig(2, 10));
  cluster.Start();
  SessionRequest request = MakeRequest("r1", 100, 0);
  request.default_max_tokens = 16;
  request.params.set_min_tokens(40);
  const auto raised = cluster.Submit(request);
  request = MakeRequest("r2", 100, 0);
  request.params.set_min_tokens(61);
  const absl::Status pool = cluster.TrySubmit(request, std::make_shared<SinkRecord>());
  EXPECT_EQ(ReasonOf(pool), "KV_NEVER_FITS");
  EXPECT_EQ(DetailOf(pool).facts().at("asked_tokens"), "161");
  EXPECT_NE(pool.message().find("61 min_tokens"), std::string::npos) << pool;
  request.params.set_min_tokens(0xFFFFFFFF);
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(request, std::make_shared<SinkRecord>())),
            "CONTEXT_EXCEEDED");
  cluster.RunToEnd();
  EXPECT_EQ(raised->tokens.size(), 40u);
}

TEST(EngineSession, ADefaultMaxTokensIsCappedByWhatIsLeft) {
  SimCluster cluster(MakeConfig(2, 10));
  cluster.Start();
  SessionRequest request = MakeRequest("r1", 100, 0);
  const auto capped = cluster.Submit(request);
  request = MakeRequest("r2", 100, 0);
  request.default_max_tokens = 16;
  const auto small = cluster.Submit(request);
  cluster.RunToEnd();
  EXPECT_EQ(capped->started.value().max_tokens, 60u);
  EXPECT_EQ(capped->done.value().reason, "length");
  EXPECT_EQ(small->tokens.size(), 16u);
}

TEST(EngineSession, BadRequestsAreRefused) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  auto sink = std::make_shared<SinkRecord>();
  SessionRequest request = MakeRequest("r1", 5, 5);
  request.prompt[2] = 97;
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(request, sink)), "BAD_TOKEN_ID");
  request = MakeRequest("r1", 5, 5);
  request.stop_ids = {1u << 31};
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(request, sink)), "BAD_TOKEN_ID");
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(MakeRequest("r1", 0, 5), sink)), "BAD_PROMPT");
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(MakeRequest("", 5, 5), sink)), "BAD_REQUEST_ID");
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(MakeRequest("a\nb", 5, 5), sink)), "BAD_REQUEST_ID");
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(MakeRequest(std::string(129, 'a'), 5, 5), sink)),
            "BAD_REQUEST_ID");
  request = MakeRequest("r1", 5, 5);
  request.deadline = cluster.now();
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(request, sink)), "DEADLINE_EXCEEDED");
  request = MakeRequest("r1", 5, 5);
  request.max_tokens = 0xFFFFFFFF;
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(request, sink)), "CONTEXT_EXCEEDED");
  EXPECT_EQ(cluster.Snapshot().counters.refused, 8u);
  EXPECT_EQ(cluster.engine().live_sessions(), 0u);
}

TEST(EngineSession, AnIdInFlightIsRefusedAndFreeAfterTheEnd) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  const auto sink = cluster.Submit(MakeRequest("r1", 5, 5));
  auto twin = std::make_shared<SinkRecord>();
  const absl::Status status = cluster.TrySubmit(MakeRequest("r1", 5, 5), twin);
  EXPECT_TRUE(absl::IsAlreadyExists(status));
  EXPECT_EQ(ReasonOf(status), "REQUEST_IN_FLIGHT");
  // Another scope may use the same id at the same time.
  SessionRequest other = MakeRequest("r1", 9, 3);
  other.key = "other/r1";
  const auto scoped = cluster.Submit(other);
  cluster.RunToEnd();
  EXPECT_EQ(sink->tokens.size(), 5u);
  EXPECT_EQ(scoped->tokens, Answer(other, 3));
  EXPECT_TRUE(cluster.TrySubmit(MakeRequest("r1", 5, 5), twin).ok());
  cluster.RunToEnd();
  EXPECT_EQ(twin->tokens, sink->tokens);
}

TEST(EngineSession, QueueIsFirstInFirstOutAndLimited) {
  EngineConfig config = MakeConfig(2, 8);
  config.max_queued_requests = 2;
  SimCluster cluster(config);
  cluster.Start();
  cluster.Settle();
  const auto running = cluster.Submit(MakeRequest("r0", 64, 50));
  const auto first = cluster.Submit(MakeRequest("r1", 64, 50));
  const auto small = cluster.Submit(MakeRequest("r2", 1, 1));
  EXPECT_TRUE(running->started.has_value());
  EXPECT_FALSE(small->started.has_value()) << "it would fit, but it is not its turn";
  auto sink = std::make_shared<SinkRecord>();
  const absl::Status full = cluster.TrySubmit(MakeRequest("r3", 1, 1), sink);
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_EQ(ReasonOf(full), "QUEUE_FULL");
  EXPECT_EQ(DetailOf(full).limit(), "max_queued_requests=2");
  cluster.Advance(seconds(1));
  cluster.RunToEnd();
  EXPECT_TRUE(running->done.has_value() && first->done.has_value() && small->done.has_value());
  EXPECT_EQ(first->done->queued, seconds(1));
  EXPECT_EQ(cluster.Snapshot().counters.failed, 0u);
}

TEST(EngineSession, RunningSessionsAreLimited) {
  EngineConfig config = MakeConfig(2, 100);
  config.max_sessions = 3;
  SimCluster cluster(config);
  cluster.Start();
  cluster.Settle();
  std::vector<std::shared_ptr<SinkRecord>> sinks;
  for (int i = 0; i < 5; ++i) {
    sinks.push_back(cluster.Submit(MakeRequest("r" + std::to_string(i), 4, 4)));
  }
  EXPECT_TRUE(sinks[2]->started.has_value());
  EXPECT_FALSE(sinks[3]->started.has_value());
  cluster.RunToEnd();
  EXPECT_TRUE(sinks[4]->done.has_value());
}

TEST(EngineSession, StopAdmittingLetsTheOthersFinish) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  const auto sink = cluster.Submit(MakeRequest("r1", 5, 5));
  cluster.engine().StopAdmitting(
      Error(absl::StatusCode::kUnavailable, "DRAINING", "the coordinator is going down"));
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(MakeRequest("r2", 5, 5), sink)), "DRAINING");
  cluster.RunToEnd();
  EXPECT_TRUE(sink->done.has_value());
}

TEST(EngineSession, FailAllReleasesAndGoesOn) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const auto sink = cluster.Submit(MakeRequest("r1", 50, 50));
  cluster.Deliver(0);
  cluster.engine().FailAll(Error(absl::StatusCode::kAborted, "UNLOADED", "unloaded"),
                           cluster.now());
  EXPECT_EQ(ReasonOf(sink->failed.value()), "UNLOADED");
  cluster.Settle();
  cluster.ExpectEmpty();
  const auto next = cluster.Submit(MakeRequest("r1", 5, 5));
  cluster.RunToEnd();
  EXPECT_TRUE(next->done.has_value());
}

TEST(EngineSession, AStoppedEngineSaysNothingMore) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  const auto sink = cluster.Submit(MakeRequest("r1", 50, 50));
  const size_t sent = cluster.sent.size();
  cluster.engine().Stop(Error(absl::StatusCode::kUnavailable, "NODE_LOST", "node0 is lost"),
                        cluster.now());
  EXPECT_EQ(ReasonOf(sink->failed.value()), "NODE_LOST");
  cluster.Settle();
  cluster.Advance(seconds(100));
  EXPECT_EQ(cluster.sent.size(), sent);
  EXPECT_FALSE(cluster.pending_fence.has_value());
  EXPECT_FALSE(cluster.engine().NextWake().has_value());
  auto other = std::make_shared<SinkRecord>();
  EXPECT_EQ(ReasonOf(cluster.TrySubmit(MakeRequest("r2", 5, 5), other)), "NODE_LOST");
}

TEST(EngineSession, FirstChunksAreSmallOnSlowStages) {
  EngineConfig config = MakeConfig(1);
  config.stages[0].predicted_ms = 100;  // 1250 ms for a step: 12 tokens.
  SimCluster cluster(config);
  cluster.fake(0).fixed_ms = 100;
  cluster.fake(0).row_ms = 4;
  cluster.Start();
  cluster.Submit(MakeRequest("r1", 500, 2));
  cluster.RunToEnd();
  uint32_t first = 0;
  uint32_t most = 0;
  for (const v1::StepFrame& frame : cluster.sent) {
    first = first == 0 ? frame.rows() : first;
    most = std::max(most, frame.rows());
    EXPECT_LE(100 + 4 * frame.rows(), 1250u) << "no step takes longer than an eighth of 10 s";
  }
  EXPECT_EQ(first, 12u);
  EXPECT_GT(most, 100u) << "measured to be faster than planned";
}

}  // namespace
}  // namespace strata
