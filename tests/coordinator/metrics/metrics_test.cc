#include "coordinator/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Two stages, two groups on the second; one session in each state but two that decode.
ModelSnapshot Busy() {
  ModelSnapshot snapshot;
  snapshot.model = "m";
  snapshot.kv_groups = {"full", "window64"};
  snapshot.engine.state = PipelineState::kRunning;
  for (const char* state :
       {"queued", "prefill", "decode", "decode", "replaying", "paused", "preempted"}) {
    SessionSnapshot session;
    session.request_id = "secret-id";
    session.state = state;
    snapshot.engine.sessions.push_back(session);
  }
  snapshot.engine.kv = {{0, 0, 100, 40, 50, 5, 5}, {1, 0, 10, 1, 8, 0, 1}, {1, 1, 0, 0, 0, 0, 0}};
  snapshot.engine.kv_tokens = 160;
  snapshot.engine.steps_in_flight = 3;
  snapshot.engine.token_budget = 64;
  snapshot.engine.hop_ms = 2;
  snapshot.engine.nodes = {"a", "b"};
  PipelineCounters& pipeline = snapshot.engine.pipeline;
  pipeline.stages.resize(2);
  pipeline.stages[1] = {70, 900, milliseconds(1500), milliseconds(20), milliseconds(250), 7000,
                        80, {}};
  for (const double seconds : {0.0001, 0.004, 0.004, 60.0}) {
    pipeline.stages[1].step_time.Add(seconds);
  }
  pipeline.hops.Add(0.003);
  pipeline.busy = milliseconds(1750);
  snapshot.engine.counters.steps_committed = 70;
  snapshot.engine.counters.preemptions = 4;
  snapshot.engine.counters.prefix_query_tokens = 90;
  snapshot.engine.counters.prefix_hit_tokens = 60;
  snapshot.engine.counters.drafted_by_source[DraftSource::kRecentAnswer] = 9;
  snapshot.engine.counters.accepted_by_source[DraftSource::kRecentAnswer] = 8;
  snapshot.engine.counters.ledger_mismatches = 2;
  return snapshot;
}

class MetricsTest : public ::testing::Test {
 protected:
  std::vector<std::string> Scrape(const std::vector<ModelSnapshot>& models = {}) {
    return Lines(metrics_.Text(models));
  }
  // Started after 20 ms in the queue, tokens at 120, 150 and 200 ms.
  void Observe(const std::string& reason) {
    RequestMetrics request(&metrics_, "m");
    request.OnStarted({7, 16, milliseconds(20)}, At(20));
    for (const int ms : {120, 150, 200}) request.OnToken(At(ms));
    FinishInfo finish;
    finish.reason = reason;
    finish.prompt_tokens = 7;
    finish.completion_tokens = 3;
    finish.cached_tokens = 5;
    finish.queued = milliseconds(20);
    finish.first_token = milliseconds(120);
    finish.total = milliseconds(200);
    finish.times.hops = milliseconds(30);
    request.OnDone(finish);
  }
  static TimePoint At(int ms) { return TimePoint() + milliseconds(1000 + ms); }

  Metrics metrics_;
};

TEST_F(MetricsTest, SaysWhenTheCertificatesOfListenersEnd) {
  const auto lines =
      Lines(metrics_.Text({}, 0, {{"grpc", 1'800'000'001}, {"http", 1'900'000'000}}));
  for (const char* line : {
           R"(strata_certificate_expires_timestamp_seconds{listener="grpc"} 1800000001)",
           R"(strata_certificate_expires_timestamp_seconds{listener="http"} 1900000000)",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
  EXPECT_THAT(Scrape(), Each(Not(HasSubstr("listener="))));
}

TEST_F(MetricsTest, ARequestIsMeasuredFromItsSubmissionToItsEnd) {
  Observe("stop");
  const auto lines = Scrape();
  for (const char* line : {
           R"(strata_requests_total{finished_reason="stop",model="m"} 1)",
           R"(strata_prompt_tokens_total{model="m"} 7)",
           R"(strata_cached_prompt_tokens_total{model="m"} 5)",
           R"(strata_generation_tokens_total{model="m"} 3)",
           R"(strata_request_queue_seconds_sum{model="m"} 0.02)",
           R"(strata_request_prefill_seconds_sum{model="m"} 0.1)",
           R"(strata_request_decode_seconds_sum{model="m"} 0.08)",
           R"(strata_request_seconds_sum{model="m"} 0.2)",
           R"(strata_request_hop_seconds_sum{model="m"} 0.03)",
           R"(strata_inter_token_seconds_sum{model="m"} 0.08)",
           R"(strata_inter_token_seconds_count{model="m"} 2)",
           R"(strata_inter_token_seconds_bucket{model="m",le="0.04"} 1)",
           R"(strata_inter_token_seconds_bucket{model="m",le="0.05"} 2)",
           R"(strata_time_to_first_token_seconds_count{model="m"} 1)",
           R"(strata_time_to_first_token_seconds_bucket{model="m",le="0.1"} 0)",
           R"(strata_time_to_first_token_seconds_bucket{model="m",le="0.15"} 1)",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
}

TEST_F(MetricsTest, RequestsThatDoNotEndWellAreCountedButTheirTotalIsNot) {
  Observe("cancelled");
  RequestMetrics failed(&metrics_, "m");
  failed.OnStarted({7, 16, milliseconds(20)}, At(20));
  failed.OnFailed(absl::UnavailableError("down"));
  RequestMetrics(&metrics_, "m").OnRefused(absl::ResourceExhaustedError("full"));
  RequestMetrics(&metrics_, "m").OnRefused(absl::CancelledError());
  const auto lines = Scrape({Busy()});
  for (const char* line : {
           R"(strata_requests_total{finished_reason="cancelled",model="m"} 2)",
           R"(strata_requests_total{finished_reason="failed",model="m"} 1)",
           R"(strata_requests_total{finished_reason="refused",model="m"} 1)",
           R"(strata_requests_total{finished_reason="stop",model="m"} 0)",
           R"(strata_request_seconds_count{model="m"} 0)",
           R"(strata_request_queue_seconds_count{model="m"} 2)",
           R"(strata_generation_tokens_total{model="m"} 3)",
           R"(vllm:request_success_total{finished_reason="abort",model_name="m"} 2)",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
  EXPECT_THAT(lines, Not(Contains(AllOf(StartsWith("vllm:"), HasSubstr("failed")))));
  EXPECT_THAT(lines, Not(Contains(AllOf(StartsWith("vllm:"), HasSubstr("refused")))));
}

TEST_F(MetricsTest, WhatConstraintsCostIsCountedByTheReasonOfRefusals) {
  EXPECT_THAT(Scrape(), Contains("strata_constraint_compiles_total 0"));
  ConstraintMetrics* const constraints = metrics_.constraints();
  constraints->OnCompiled(absl::OkStatus(), milliseconds(30));
  constraints->OnCompiled(absl::OkStatus(), milliseconds(600));
  constraints->OnCompiled(
      Error(absl::StatusCode::kInvalidArgument, "SCHEMA_UNSUPPORTED", "not this one"),
      milliseconds(1));
  constraints->OnCompiled(absl::CancelledError(), milliseconds(0));
  constraints->OnKept(2, 4096);
  for (const int ms : {1, 2, 250}) constraints->OnMask(milliseconds(ms));
  const auto lines = Scrape();
  for (const char* line : {
           R"(strata_constraint_compiles_total 2)",
           R"(strata_constraint_compile_failures_total{reason="SCHEMA_UNSUPPORTED"} 1)",
           R"(strata_constraint_compile_failures_total{reason="other"} 1)",
           R"(strata_constraint_compile_seconds_count 4)",
           R"(strata_constraint_compile_seconds_bucket{le="0.5"} 3)",
           R"(strata_constraint_mask_seconds_count 3)",
           R"(strata_constraint_mask_seconds_sum 0.253)",
           R"(strata_constraint_mask_seconds_bucket{le="0.2"} 2)",
           R"(strata_constraint_kept_grammars 2)",
           R"(strata_constraint_kept_bytes 4096)",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
}

TEST_F(MetricsTest, AnEngineIsShownAsItIsAtTheScrape) {
  const auto lines = Scrape({Busy()});
  for (const char* line : {
           R"(strata_requests_running{model="m"} 5)",
           R"(strata_requests_waiting{model="m"} 2)",
           R"(strata_sessions{model="m",state="decode"} 2)",
           R"(strata_sessions{model="m",state="paused"} 1)",
           R"(strata_sessions{model="m",state="preempted"} 1)",
           R"(strata_pipeline_state{model="m",state="running"} 1)",
           R"(strata_pipeline_state{model="m",state="down"} 0)",
           R"(strata_kv_pages{model="m",stage="0",group="full",state="cached"} 5)",
           R"(strata_kv_pages{model="m",stage="1",group="full",state="live"} 8)",
           R"(strata_kv_pages{model="m",stage="1",group="window64",state="free"} 0)",
           R"(strata_kv_pool_pages{model="m",stage="0",group="full"} 100)",
           R"(strata_kv_usage_ratio{model="m"} 0.9)",
           R"(strata_kv_capacity_tokens{model="m"} 160)",
           R"(strata_drafted_tokens_by_source_total{model="m",source="recent"} 9)",
           R"(strata_accepted_tokens_by_source_total{model="m",source="recent"} 8)",
           R"(strata_accepted_tokens_by_source_total{model="m",source="request"} 0)",
           R"(strata_steps_in_flight{model="m"} 3)",
           R"(strata_step_token_budget{model="m"} 64)",
           R"(strata_hop_seconds{model="m"} 0.002)",
           R"(strata_steps_committed_total{model="m"} 70)",
           R"(strata_kv_ledger_mismatches_total{model="m"} 2)",
           R"(strata_stage_compute_seconds_total{model="m",stage="1",node="b"} 1.5)",
           R"(strata_stage_compute_seconds_total{model="m",stage="0",node="a"} 0)",
           R"(strata_stage_bubble_seconds_total{model="m",stage="1",node="b"} 0.25)",
           R"(strata_stage_wait_seconds_total{model="m",stage="1",node="b"} 0.02)",
           R"(strata_stage_steps_total{model="m",stage="1",node="b"} 70)",
           R"(strata_stage_rows_total{model="m",stage="1",node="b"} 900)",
           R"(strata_stage_received_bytes_total{model="m",stage="1",node="b"} 7000)",
           R"(strata_stage_sent_bytes_total{model="m",stage="1",node="b"} 80)",
           R"(strata_stage_step_seconds_bucket{model="m",stage="1",node="b",le="0.0001"} 1)",
           R"(strata_stage_step_seconds_bucket{model="m",stage="1",node="b",le="0.005"} 3)",
           R"(strata_stage_step_seconds_bucket{model="m",stage="1",node="b",le="30"} 3)",
           R"(strata_stage_step_seconds_bucket{model="m",stage="1",node="b",le="+Inf"} 4)",
           R"(strata_stage_step_seconds_count{model="m",stage="1",node="b"} 4)",
           R"(strata_step_hop_seconds_sum{model="m"} 0.003)",
           R"(strata_pipeline_busy_seconds_total{model="m"} 1.75)",
           R"(vllm:num_requests_running{model_name="m"} 5)",
           R"(vllm:num_requests_waiting{model_name="m"} 2)",
           R"(vllm:kv_cache_usage_perc{model_name="m"} 0.9)",
           R"(vllm:num_preemptions_total{model_name="m"} 4)",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
}

TEST_F(MetricsTest, AdmissionIsTimedFromTheLastByteToTheDecisionAndInParts) {
  RequestMetrics queued(&metrics_, "m");
  queued.OnDecided({At(0), At(1), At(3), At(6)}, At(10));
  // Refused by the thread that read it: it never came to the loop.
  RequestMetrics refused(&metrics_, "m");
  refused.OnDecided({At(0), At(2), {}, {}}, At(4));
  // Nobody measured when it arrived.
  RequestMetrics(&metrics_, "m").OnDecided({}, At(50));
  const auto lines = Scrape();
  for (const char* line : {
           R"(strata_admission_seconds_count{model="m"} 2)",
           R"(strata_admission_seconds_sum{model="m"} 0.014)",
           R"(strata_admission_seconds_bucket{model="m",le="0.0035"} 0)",
           R"(strata_admission_seconds_bucket{model="m",le="0.005"} 1)",
           R"(strata_admission_seconds_bucket{model="m",le="0.01"} 2)",
           R"(strata_admission_part_seconds_sum{model="m",part="thread"} 0.003)",
           R"(strata_admission_part_seconds_count{model="m",part="thread"} 2)",
           R"(strata_admission_part_seconds_sum{model="m",part="prepare"} 0.002)",
           R"(strata_admission_part_seconds_sum{model="m",part="loop"} 0.003)",
           R"(strata_admission_part_seconds_sum{model="m",part="decide"} 0.004)",
           R"(strata_admission_part_seconds_count{model="m",part="decide"} 1)",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
}

TEST_F(MetricsTest, TheSeriesOfAModelThatIsGoneAreGone) {
  Observe("stop");
  RequestMetrics in_flight(&metrics_, "m");
  in_flight.OnStarted({7, 16, milliseconds(20)}, At(20));
  RequestMetrics other(&metrics_, "other");
  metrics_.KeepOnly({"other"});
  in_flight.OnToken(At(120));
  in_flight.OnFailed(absl::CancelledError());
  const auto lines = Scrape();
  EXPECT_THAT(lines, Each(Not(HasSubstr(R"("m")"))));
  EXPECT_THAT(lines, Contains(R"(strata_prompt_tokens_total{model="other"} 0)"));
}

TEST_F(MetricsTest, AliasesHaveTheValuesOfTheOwnNames) {
  Observe("length");
  const auto lines = Scrape({Busy()});
  for (const char* line : {
           R"(vllm:request_success_total{finished_reason="length",model_name="m"} 1)",
           R"(vllm:prompt_tokens_total{model_name="m"} 7)",
           R"(vllm:generation_tokens_total{model_name="m"} 3)",
           R"(vllm:prefix_cache_queries_total{model_name="m"} 90)",
           R"(vllm:prefix_cache_hits_total{model_name="m"} 60)",
           R"(vllm:time_to_first_token_seconds_count{model_name="m"} 1)",
           R"(vllm:inter_token_latency_seconds_sum{model_name="m"} 0.08)",
           R"(vllm:e2e_request_latency_seconds_sum{model_name="m"} 0.2)",
           R"(vllm:request_queue_time_seconds_sum{model_name="m"} 0.02)",
           R"(vllm:request_prefill_time_seconds_sum{model_name="m"} 0.1)",
           R"(vllm:request_decode_time_seconds_sum{model_name="m"} 0.08)",
           "# TYPE vllm:time_to_first_token_seconds histogram",
           "# TYPE vllm:num_requests_running gauge",
           "# TYPE vllm:prompt_tokens_total counter",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
}

TEST_F(MetricsTest, AModelIsThereWithZerosBeforeItsFirstRequest) {
  const auto lines = Scrape({Busy()});
  EXPECT_THAT(lines, Contains(R"(strata_prompt_tokens_total{model="m"} 0)"));
  EXPECT_THAT(lines, Contains(R"(strata_time_to_first_token_seconds_count{model="m"} 0)"));
  EXPECT_THAT(lines,
              Contains(R"(vllm:request_success_total{finished_reason="stop",model_name="m"} 0)"));
}

TEST_F(MetricsTest, TheNumberOfSeriesDoesNotGrowWithRequestsAndNoIdIsTold) {
  Observe("stop");
  const size_t before = Scrape({Busy()}).size();
  for (int i = 0; i < 100; ++i) Observe("stop");
  const auto lines = Scrape({Busy()});
  EXPECT_EQ(lines.size(), before);
  EXPECT_THAT(lines, Each(Not(HasSubstr("secret-id"))));
}

TEST_F(MetricsTest, EachNameIsDescribedOnceAndOwnNamesComeFirst) {
  std::set<std::string> described;
  bool aliases = false;
  for (const std::string& line : Scrape({Busy()})) {
    if (line.rfind("# TYPE ", 0) != 0) continue;
    const std::string name = line.substr(7, line.find(' ', 7) - 7);
    EXPECT_TRUE(described.insert(name).second) << name;
    const bool own = name.substr(0, 7) == "strata_";
    EXPECT_TRUE(own || name.substr(0, 5) == "vllm:") << name;
    EXPECT_FALSE(own && aliases) << name;
    aliases = !own;
  }
  EXPECT_TRUE(aliases);
}

}  // namespace
}  // namespace strata
