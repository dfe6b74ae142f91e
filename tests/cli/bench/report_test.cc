#include "cli/bench/report.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/status.h"

namespace strata::cli {
namespace {

constexpr TimePoint At(double ms) { return TimePoint(static_cast<int64_t>(ms * 1e6)); }

RequestEnd Good(uint32_t prompt_tokens = 10, uint32_t generated_tokens = 0) {
  RequestEnd end;
  end.prompt_tokens = prompt_tokens;
  end.generated_tokens = generated_tokens;
  end.numerics_class = "some-1";
  return end;
}

RequestEnd Bad(absl::StatusCode code, const char* reason) {
  RequestEnd end;
  end.status = Error(code, reason, "it went wrong");
  end.refused = code == absl::StatusCode::kResourceExhausted;
  return end;
}

TEST(Percentiles, AreTheNearestRanks) {
  std::vector<double> values;
  EXPECT_EQ(Percentile(&values, 0.5), 0);
  values = {3};
  EXPECT_EQ(Percentile(&values, 0.01), 3);
  EXPECT_EQ(Percentile(&values, 0.99), 3);
  values.clear();
  for (int i = 200; i >= 1; --i) values.push_back(i);
  const Percentiles percentiles = PercentilesOf(values);
  EXPECT_EQ(percentiles.p50, 100);
  EXPECT_EQ(percentiles.p95, 190);
  EXPECT_EQ(percentiles.p99, 198);
}

TEST(Report, TimesCountFromWhenARequestWasDue) {
  LoadRecorder recorder(At(0), {});
  recorder.OnBegin(0, At(100), At(130));
  recorder.OnTokens(0, At(200), 1);
  recorder.OnTokens(0, At(220), 1);
  recorder.OnEnd(0, At(230), Good());
  const LoadReport report = recorder.Report();
  EXPECT_DOUBLE_EQ(report.late_ms.p50, 30);
  EXPECT_DOUBLE_EQ(report.ttft_ms.p50, 100);
  EXPECT_DOUBLE_EQ(report.inter_token_ms.p50, 20);
  EXPECT_DOUBLE_EQ(report.request_ms.p50, 130);
  EXPECT_EQ(report.numerics_class, "some-1");
}

TEST(Report, AnswersAreToldWithTheirWholeText) {
  std::vector<std::string> told;
  LoadRecorder recorder(At(0), {}, [&](uint32_t request, std::string_view text, const RequestEnd&) {
    told.push_back(std::to_string(request) + ":" + std::string(text));
  });
  recorder.OnBegin(0, At(0), At(0));
  recorder.OnBegin(1, At(0), At(0));
  recorder.OnText(0, "a");
  recorder.OnText(1, "x");
  recorder.OnText(0, "b");
  recorder.OnEnd(1, At(1), Bad(absl::StatusCode::kInternal, "BROKEN"));
  recorder.OnEnd(0, At(2), Good());
  EXPECT_EQ(told, (std::vector<std::string>{"1:x", "0:ab"}));
}

TEST(Report, RatesAreOverTheTimeToTheLastEnd) {
  LoadRecorder recorder(At(1000), {});
  for (uint32_t i = 0; i < 4; ++i) {
    recorder.OnBegin(i, At(1000), At(1000));
    recorder.OnTokens(i, At(1500), 3);
  }
  for (uint32_t i = 0; i < 3; ++i) recorder.OnEnd(i, At(2000 + 1000 * i), Good(50));
  recorder.OnEnd(3, At(6000), Bad(absl::StatusCode::kInternal, "BROKEN"));
  const LoadReport report = recorder.Report();
  EXPECT_DOUBLE_EQ(report.wall_s, 5);
  EXPECT_DOUBLE_EQ(report.requests_per_s, 3 / 5.0);
  EXPECT_DOUBLE_EQ(report.generated_tokens_per_s, 9 / 5.0);
  EXPECT_DOUBLE_EQ(report.prompt_tokens_per_s, 150 / 5.0);
}

TEST(Report, TokensThatComeTogetherShareTheirGap) {
  LoadRecorder recorder(At(0), {});
  recorder.OnBegin(0, At(0), At(0));
  recorder.OnTokens(0, At(10), 4);  // No gaps: the first token's time is theirs.
  recorder.OnTokens(0, At(40), 3);
  recorder.OnTokens(0, At(90), 1);
  recorder.OnEnd(0, At(90), Good());
  const LoadReport report = recorder.Report();
  EXPECT_EQ(report.generated_tokens, 8u);
  EXPECT_DOUBLE_EQ(report.inter_token_ms.p50, 10);
  EXPECT_DOUBLE_EQ(report.inter_token_ms.p99, 50);
}

TEST(Report, WhereTheServerCountedMoreTokensThanMessagesTheyShareTheGaps) {
  LoadRecorder recorder(At(0), {});
  recorder.OnBegin(0, At(0), At(0));
  for (int i = 0; i < 4; ++i) recorder.OnTokens(0, At(10 + 30 * i), 1);
  recorder.OnEnd(0, At(100), Good(10, /*generated_tokens=*/12));
  const LoadReport report = recorder.Report();
  EXPECT_EQ(report.generated_tokens, 12u);
  EXPECT_DOUBLE_EQ(report.inter_token_ms.p50, 10);
}

TEST(Report, FailuresAreCountedByReasonAndKeepOutOfTheFigures) {
  LoadRecorder recorder(At(0), {});
  for (uint32_t i = 0; i < 5; ++i) recorder.OnBegin(i, At(0), At(0));
  recorder.OnTokens(1, At(5000), 1);
  recorder.OnEnd(0, At(1), Bad(absl::StatusCode::kResourceExhausted, "QUEUE_FULL"));
  recorder.OnEnd(1, At(9000), Bad(absl::StatusCode::kUnavailable, "CONNECTION_LOST"));
  recorder.OnEnd(2, At(1), Bad(absl::StatusCode::kResourceExhausted, "QUEUE_FULL"));
  recorder.OnTokens(3, At(7), 1);
  recorder.OnEnd(3, At(8), Good());
  RequestEnd untyped;
  untyped.status = absl::InternalError("no reason");
  recorder.OnEnd(4, At(9), untyped);
  const LoadReport report = recorder.Report();
  EXPECT_EQ(report.requests, 5u);
  EXPECT_EQ(report.failed, 4u);
  EXPECT_EQ(report.refused, 2u);
  ASSERT_EQ(report.failures.size(), 3u);
  EXPECT_EQ(report.failures.at("QUEUE_FULL").count, 2u);
  EXPECT_EQ(report.failures.at("CONNECTION_LOST").count, 1u);
  EXPECT_EQ(report.failures.at("INTERNAL").count, 1u);
  EXPECT_EQ(ReasonOf(report.first_error), "QUEUE_FULL");
  EXPECT_EQ(report.generated_tokens, 1u);
  EXPECT_DOUBLE_EQ(report.ttft_ms.p99, 7);
}

TEST(Report, GoodRequestsKeepBothTargets) {
  LoadRecorder recorder(At(0), {.ttft_ms = 100, .inter_token_ms = 20});
  const auto request = [&](uint32_t id, double first, double gap, bool ok = true) {
    recorder.OnBegin(id, At(0), At(0));
    recorder.OnTokens(id, At(first), 1);
    // One gap is long: the mean counts.
    recorder.OnTokens(id, At(first + gap / 2), 1);
    recorder.OnTokens(id, At(first + 2 * gap), 1);
    recorder.OnEnd(id, At(2000), ok ? Good() : Bad(absl::StatusCode::kInternal, "BROKEN"));
  };
  request(0, 100, 20);
  request(1, 101, 20);
  request(2, 100, 21);
  request(3, 10, 2);
  request(4, 10, 2, /*ok=*/false);
  const LoadReport report = recorder.Report();
  EXPECT_EQ(report.good, 2u);
  EXPECT_DOUBLE_EQ(report.good_requests_per_s, 1);
}

TEST(Report, WithoutTargetsEveryAnswerIsGood) {
  LoadRecorder recorder(At(0), {});
  recorder.OnBegin(0, At(0), At(0));
  recorder.OnEnd(0, At(5), Good());
  EXPECT_EQ(recorder.Report().good, 1u);
}

TEST(Report, OfNothingIsZeros) {
  const LoadReport report = LoadRecorder(At(3), {}).Report();
  EXPECT_EQ(report.wall_s, 0);
  EXPECT_EQ(report.generated_tokens_per_s, 0);
  EXPECT_EQ(report.ttft_ms.p99, 0);
}

}  // namespace
}  // namespace strata::cli
