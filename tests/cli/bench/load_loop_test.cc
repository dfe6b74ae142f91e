#include "cli/bench/load_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "common/status.h"

namespace strata::cli {
namespace {

using std::chrono::seconds;

class ManualClock : public Clock {
 public:
  TimePoint Now() const override { return now; }
  TimePoint now{seconds(1000)};
};

// Answers each request after `latency`, all with one token, on the test's own time.
class FakeTarget : public LoadTarget {
 public:
  explicit FakeTarget(ManualClock* clock) : clock_(*clock) {}

  void Start(uint32_t request, const WorkloadRequest& what) override {
    begun.push_back(clock_.now);
    in_flight_[request] = clock_.now + latency;
    most = std::max(most, in_flight_.size());
    prompt_tokens += static_cast<uint32_t>(what.prompt.size());
  }
  void Poll(TimePoint until, LoadObserver* observer) override {
    auto next = in_flight_.end();
    for (auto it = in_flight_.begin(); it != in_flight_.end(); ++it) {
      if (next == in_flight_.end() || it->second < next->second) next = it;
    }
    if (next == in_flight_.end() || next->second > until) {
      clock_.now = std::max(clock_.now, until);
      return;
    }
    const auto [request, at] = *next;
    in_flight_.erase(next);
    clock_.now = std::max(clock_.now, at);
    RequestEnd end;
    if (cancelled_) {
      end.status = Error(absl::StatusCode::kCancelled, "CANCELLED", "cancelled");
    } else {
      observer->OnTokens(request, clock_.now, 1);
    }
    observer->OnEnd(request, clock_.now, end);
  }
  void CancelAll() override {
    cancelled_ = true;
    for (auto& [request, at] : in_flight_) at = clock_.now;
  }

  nanoseconds latency = milliseconds(100);
  std::vector<TimePoint> begun;
  size_t most = 0;
  uint32_t prompt_tokens = 0;

 private:
  ManualClock& clock_;
  std::map<uint32_t, TimePoint> in_flight_;
  bool cancelled_ = false;
};

class LoadLoopTest : public ::testing::Test {
 protected:
  LoadReport Run(double rate = 0) {
    WorkloadOptions workload;
    workload.prompt = LengthDistribution::Always(5);
    workload.vocab_size = 10;
    workload.rate = rate;
    const TimePoint begin = clock_.now;
    const LoadReport report = RunLoad(
        Workload(workload), options_, clock_, &target_,
        [&] { return clock_.now >= begin + cancel_after_; },
        [&](const LoadProgress& progress) { progress_.push_back(progress); });
    took_ = clock_.now - begin;
    return report;
  }

  ManualClock clock_;
  FakeTarget target_{&clock_};
  LoadOptions options_;
  nanoseconds cancel_after_ = seconds(1'000'000);
  std::vector<LoadProgress> progress_;
  nanoseconds took_{};
};

TEST_F(LoadLoopTest, AClosedLoopKeepsItsClientsBusyAndNoMore) {
  options_ = {.clients = 4, .requests = 40, .duration = {}, .targets = {}};
  const LoadReport report = Run();
  EXPECT_EQ(report.requests, 40u);
  EXPECT_EQ(report.failed, 0u);
  EXPECT_EQ(target_.most, 4u);
  EXPECT_EQ(target_.prompt_tokens, 200u);
  EXPECT_EQ(took_, seconds(1));
  EXPECT_DOUBLE_EQ(report.requests_per_s, 40);
  EXPECT_DOUBLE_EQ(report.ttft_ms.p99, 100);
  EXPECT_EQ(report.late_ms.p99, 0);
}

TEST_F(LoadLoopTest, ADurationEndsTheBeginningAndThoseInFlightEnd) {
  options_ = {.clients = 2, .requests = 1000, .duration = milliseconds(250), .targets = {}};
  const LoadReport report = Run();
  EXPECT_EQ(report.requests, 6u);  // Two each at 0, 100 and 200 ms.
  EXPECT_EQ(report.failed, 0u);
  EXPECT_EQ(took_, milliseconds(300));
}

TEST_F(LoadLoopTest, ClientsOfARampBeginOneAfterTheOther) {
  options_ = {.clients = 4, .ramp = seconds(1), .requests = 100, .duration = {}, .targets = {}};
  Run();
  // One has an answer every 100 ms: the second one joins at 250 ms, the others at 500 and 750.
  auto begun_at = [this](int ms) {
    return std::count(target_.begun.begin(), target_.begun.end(),
                      TimePoint(seconds(1000) + milliseconds(ms)));
  };
  EXPECT_EQ(begun_at(0), 1);
  EXPECT_EQ(begun_at(200), 1);
  EXPECT_EQ(begun_at(250), 1);
  EXPECT_EQ(begun_at(500), 2);
  EXPECT_EQ(begun_at(750), 2);
  EXPECT_EQ(target_.most, 4u);
}

TEST_F(LoadLoopTest, AnOpenLoopDoesNotWaitForAnswers) {
  target_.latency = seconds(2);
  options_ = {.clients = 10'000, .requests = 1000, .duration = {}, .targets = {}};
  const LoadReport report = Run(/*rate=*/100);
  EXPECT_EQ(report.requests, 1000u);
  EXPECT_NEAR(static_cast<double>(target_.most), 200, 60);  // 100 a second, 2 s each.
  EXPECT_NEAR(ToMs(target_.begun.back() - target_.begun.front()), 10'000, 1000);
  EXPECT_DOUBLE_EQ(report.ttft_ms.p99, 2000);
  EXPECT_EQ(report.late_ms.p99, 0);
}

TEST_F(LoadLoopTest, AnOpenLoopComesAtTheWorkloadsTimes) {
  options_ = {.clients = 100, .requests = 20, .duration = {}, .targets = {}};
  Run(/*rate=*/50);
  WorkloadOptions same;
  same.rate = 50;
  const Workload workload(same);
  TimePoint due = TimePoint(seconds(1000));
  ASSERT_EQ(target_.begun.size(), 20u);
  for (uint32_t i = 0; i < 20; ++i) {
    due += workload.ArrivalGap(i);
    EXPECT_EQ(target_.begun[i], due) << i;
  }
}

TEST_F(LoadLoopTest, ARequestThatFindsNoFreeClientWaitsAndTheWaitCounts) {
  options_ = {.clients = 1, .requests = 50, .duration = {}, .targets = {}};
  const LoadReport report = Run(/*rate=*/1000);  // 100 times what it can take.
  EXPECT_EQ(target_.most, 1u);
  // The last ones waited for nearly all before them.
  EXPECT_NEAR(report.ttft_ms.p99, 5000, 100);
  EXPECT_NEAR(report.late_ms.p99, 4900, 100);
}

TEST_F(LoadLoopTest, AnOpenLoopEndsWithItsDuration) {
  options_ = {.clients = 1000, .requests = 1u << 30, .duration = seconds(5), .targets = {}};
  const LoadReport report = Run(/*rate=*/40);
  EXPECT_NEAR(report.requests, 200, 45);
  EXPECT_LT(target_.begun.back(), TimePoint(seconds(1005)));
}

TEST_F(LoadLoopTest, CancellingEndsItSoon) {
  target_.latency = seconds(60);
  cancel_after_ = seconds(2);
  options_ = {.clients = 8, .requests = 1000, .duration = {}, .targets = {}};
  const LoadReport report = Run();
  EXPECT_EQ(report.requests, 8u);
  EXPECT_EQ(report.failed, 8u);
  EXPECT_LE(took_, milliseconds(2200));
}

TEST_F(LoadLoopTest, ProgressIsToldTenTimesASecondAndAtTheEnd) {
  options_ = {.clients = 4, .requests = 40, .duration = {}, .targets = {}};
  Run();
  EXPECT_GE(progress_.size(), 10u);
  EXPECT_LE(progress_.size(), 13u);
  EXPECT_EQ(progress_.back().ended, 40u);
  EXPECT_EQ(progress_.back().tokens, 40u);
}

}  // namespace
}  // namespace strata::cli
