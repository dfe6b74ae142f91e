// What clients see of the scheduler's choices: a pipeline of two stages that take what tiny11 takes
// with int8 weights on one thread each (PERFORMANCE.md), in simulated time, with what the scheduler
// learns of it by its own steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "coordinator/engine/scheduler.h"
#include "coordinator/engine/step_pace.h"
#include "coordinator/engine/step_timing.h"

namespace strata {
namespace {

constexpr double kHopMs = 0.1;

// Half of tiny11. Up to 16 rows by measurement, then by arithmetic; attention apart.
double TinyHalfMs(const StepWork& work) {
  static constexpr std::array<std::pair<double, double>, 8> kMs = {
      {{1, 18.3}, {2, 20.5}, {4, 24}, {8, 31}, {16, 53}, {64, 196}, {512, 1460}, {4096, 11680}}};
  size_t i = 1;
  while (work.rows > kMs[i].first) {
    ++i;
  }
  const auto [x, y] = kMs[i - 1];
  const auto [to_x, to_y] = kMs[i];
  return y + (work.rows - x) / (to_x - x) * (to_y - y) + 0.0014 * work.attended;
}

struct Stream {
  uint32_t prompt = 0;
  uint32_t answer = 0;
  uint32_t sent = 0;
  uint32_t known = 0;
  uint64_t last_step = 0;
  double arrived = 0;
  double newest = 0;        // When its newest token came.
  double first_token = -1;  // Milliseconds after it arrived.
  std::vector<double> gaps;
  bool decoding() const { return known > prompt && sent + 1 >= known && known < prompt + answer; }
};

class Cluster {
 public:
  Cluster(uint32_t stages, double scale, double scatter, double inter_token_ms)
      : scale_(scale),
        scatter_(0, scatter),
        inter_token_ms_(inter_token_ms),
        free_at_(stages),
        busy_(stages),
        timing_(std::vector<double>(stages, 19 * scale), std::chrono::seconds(10), 512) {}

  uint64_t Add(uint32_t prompt, uint32_t answer = 1000000) {
    const uint64_t id = streams_.size() + 1;
    Stream& stream = streams_[id];
    stream.prompt = stream.known = prompt;
    stream.answer = answer;
    stream.arrived = now_;
    return id;
  }
  Stream& stream(uint64_t id) { return streams_.at(id); }
  double now() const { return now_; }
  double busy(size_t stage) const { return busy_[stage]; }
  uint32_t most_decode_items() const { return most_decode_items_; }
  void ForgetGaps() {
    for (auto& [id, stream] : streams_) {
      stream.gaps.clear();
    }
  }

  // Until `id` has its first token, or for so many milliseconds.
  void RunUntilFirstToken(uint64_t id) {
    while (streams_.at(id).first_token < 0) {
      OneResult();
    }
  }
  void Run(double ms) {
    for (const double end = now_ + ms; now_ < end;) {
      OneResult();
    }
  }
  // The 95th percentile of the waits between tokens, of those that decode.
  double P95() const {
    std::vector<double> gaps;
    for (const auto& [id, stream] : streams_) {
      gaps.insert(gaps.end(), stream.gaps.begin(), stream.gaps.end());
    }
    std::sort(gaps.begin(), gaps.end());
    return gaps.at(gaps.size() * 95 / 100);
  }

 private:
  struct Step {
    std::vector<ScheduledItem> items;
    StepWork work;
    std::vector<double> ms;
    double back_at = 0;
  };

  SchedulerSnapshot Snapshot() const {
    SchedulerSnapshot view;
    view.stages = static_cast<uint32_t>(free_at_.size());
    view.steps_in_flight = static_cast<uint32_t>(in_flight_.size());
    view.token_budget = timing_.TokenBudget();
    view.max_items = 256;
    view.max_logits_rows = 1000;
    view.costs = timing_.Costs();
    view.hop_ms = kHopMs;
    view.most_step_ms = timing_.target_ms();
    view.inter_token_ms = inter_token_ms_;
    for (const auto& [id, stream] : streams_) {
      view.decoding += stream.decoding() ? 1 : 0;
      view.decoding_attended += stream.decoding() ? stream.known : 0;
      if (stream.sent < stream.known) {
        view.ready.push_back({.id = id,
                              .pending = stream.known - stream.sent,
                              .position = stream.sent,
                              .decoding = stream.decoding(),
                              .last_step = stream.last_step});
      }
    }
    return view;
  }

  void Send() {
    while (in_flight_.size() <= free_at_.size()) {
      Step step;
      step.items = ScheduleStep(Snapshot());
      if (step.items.empty()) {
        return;
      }
      ++steps_;
      uint32_t decode_items = 0;
      for (const ScheduledItem& item : step.items) {
        Stream& stream = streams_.at(item.id);
        decode_items += stream.decoding() ? 1 : 0;
        step.work.rows += item.tokens;
        step.work.attended += Attended(stream.sent, item.tokens);
        stream.sent += item.tokens;
        stream.last_step = steps_;
      }
      most_decode_items_ = std::max(most_decode_items_, decode_items);
      double at = now_;
      for (size_t s = 0; s < free_at_.size(); ++s) {
        step.ms.push_back(scale_ * TinyHalfMs(step.work) * std::exp(scatter_(random_)));
        at = free_at_[s] = std::max(at + kHopMs, free_at_[s]) + step.ms.back();
        busy_[s] += step.ms.back();
      }
      step.back_at = at + kHopMs;
      in_flight_.push_back(std::move(step));
    }
  }

  void OneResult() {
    Send();
    const Step step = std::move(in_flight_.front());
    in_flight_.pop_front();
    now_ = step.back_at;
    for (size_t s = 0; s < step.ms.size(); ++s) {
      timing_.Observe(static_cast<uint32_t>(s), step.work, step.ms[s]);
    }
    for (const ScheduledItem& item : step.items) {
      Stream& stream = streams_.at(item.id);
      const bool in_flight = std::any_of(in_flight_.begin(), in_flight_.end(), [&](const Step& s) {
        return std::any_of(s.items.begin(), s.items.end(),
                           [&](const ScheduledItem& other) { return other.id == item.id; });
      });
      if (stream.sent < stream.known || in_flight) {
        continue;  // More of its prompt is to come.
      }
      ++stream.known;
      if (stream.first_token < 0) {
        stream.first_token = now_ - stream.arrived;
      } else {
        stream.gaps.push_back(now_ - stream.newest);
      }
      stream.newest = now_;
      stream.sent += stream.known == stream.prompt + stream.answer ? 1 : 0;  // It ended.
    }
    Send();
  }

  const double scale_;
  std::normal_distribution<double> scatter_;
  const double inter_token_ms_;
  std::mt19937 random_{1};
  double now_ = 0;
  std::map<uint64_t, Stream> streams_;
  std::deque<Step> in_flight_;
  std::vector<double> free_at_;
  std::vector<double> busy_;
  StepTiming timing_;
  uint64_t steps_ = 0;
  uint32_t most_decode_items_ = 0;
};

constexpr double kDefaultTargetMs = 20;

double FirstTokenAlone(uint32_t prompt, double scale, double scatter) {
  Cluster cluster(2, scale, scatter, kDefaultTargetMs);
  cluster.RunUntilFirstToken(cluster.Add(200, 1));  // It has seen prompts before.
  const uint64_t id = cluster.Add(prompt);
  cluster.RunUntilFirstToken(id);
  return cluster.stream(id).first_token;
}

TEST(SchedulerLatency, ALongPromptBesideEightStreams) {
  for (const double scale : {1.0, 0.5, 3.0}) {  // Other machines.
    for (const double scatter : {0.0, 0.05}) {
      SCOPED_TRACE("scale " + std::to_string(scale) + ", scatter " + std::to_string(scatter));
      Cluster streams(2, scale, scatter, kDefaultTargetMs);
      for (int i = 0; i < 8; ++i) {
        streams.Add(20 + 10 * i);
      }
      streams.Run(20000 * scale);
      streams.ForgetGaps();
      Cluster cluster = streams;
      const uint64_t prompt = cluster.Add(1500);
      cluster.RunUntilFirstToken(prompt);
      streams.Run(cluster.stream(prompt).first_token);
      const double without = streams.P95();
      const double alone = FirstTokenAlone(1500, scale, scatter);
      EXPECT_LE(cluster.P95(), (scatter > 0 ? 1.55 : 1.45) * without);
      EXPECT_LE(cluster.stream(prompt).first_token, 2.5 * alone);
      EXPECT_GT(cluster.P95(), 1.1 * without) << "it does not hold the prompt back for nothing";
    }
  }
}

TEST(SchedulerLatency, ManyStreamsKeepTheSlowestStageAtWorkInLargeBatches) {
  for (const double scatter : {0.0, 0.03}) {
    Cluster cluster(2, 1, scatter, kDefaultTargetMs);
    for (int i = 0; i < 32; ++i) {
      cluster.Add(20 + i);
    }
    cluster.Run(10000);
    const double began = cluster.now();
    const double busy = cluster.busy(0);
    const double other = cluster.busy(1);
    cluster.Run(20000);
    EXPECT_EQ(cluster.most_decode_items(), 16u);
    const double share =
        std::max(cluster.busy(0) - busy, cluster.busy(1) - other) / (cluster.now() - began);
    EXPECT_GE(share, 0.92);
  }
}

TEST(SchedulerLatency, PromptsAloneFillThePipeline) {
  // 1,500 rows one after the other on two stages would take twice the time of one stage.
  const double stage_ms = TinyHalfMs({1500, Attended(0, 1500)});
  EXPECT_LT(FirstTokenAlone(1500, 1, 0), 1.25 * stage_ms);
}

TEST(SchedulerLatency, WithoutATargetPromptsTakeWhatTheyWant) {
  Cluster cluster(2, 1, 0, 0);
  for (int i = 0; i < 8; ++i) {
    cluster.Add(20);
  }
  cluster.Run(20000);
  const uint64_t prompt = cluster.Add(1500);
  cluster.RunUntilFirstToken(prompt);
  EXPECT_LT(cluster.stream(prompt).first_token, 1.5 * FirstTokenAlone(1500, 1, 0));
}

}  // namespace
}  // namespace strata
