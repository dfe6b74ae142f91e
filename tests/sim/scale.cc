#include "tests/sim/scale.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <deque>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/engine/engine.h"
#include "tests/sim/random.h"
#include "tests/sim/scenario.h"

namespace strata::sim {
namespace {

constexpr uint32_t kPages = 1200;  // Of a pool: about 40 requests.
constexpr nanoseconds kHop = std::chrono::microseconds(200);
constexpr nanoseconds kLookPause = std::chrono::seconds(2);
// Requests of a pipeline come this fast; it serves them more slowly.
constexpr uint32_t kMeanPauseMs = 150;

enum class EventKind { kArrival, kFenced, kResult, kWake, kLook };

struct Event {
  TimePoint at{0};
  uint64_t order = 0;  // Among those at the same time.
  uint32_t pipeline = 0;
  EventKind kind{};
  bool operator>(const Event& other) const {
    return std::pair(at, order) > std::pair(other.at, other.order);
  }
};

struct Totals {
  uint64_t answered = 0;
  uint64_t failed = 0;
  uint64_t tokens = 0;
  uint64_t overflows = 0;  // Steps that a stage had no page for.
  double live_share = 0;   // Sum over looks while somebody waited.
  uint64_t looks = 0;
};

class Scale;

class CountingSink : public SessionSink {
 public:
  CountingSink(Totals* totals, uint32_t expected) : totals_(totals), expected_(expected) {}
  void OnStarted(const StartedInfo& info) override {}
  void OnRows(const RowsInfo& rows) override {}
  Verdict OnToken(const TokenInfo& token) override {
    right_ = right_ && token.index == tokens_;
    ++tokens_;
    return Verdict::kContinue;
  }
  void OnDone(const FinishInfo& info) override {
    ++(right_ && tokens_ == expected_ ? totals_->answered : totals_->failed);
    totals_->tokens += tokens_;
  }
  void OnFailed(const absl::Status& status) override { ++totals_->failed; }

 private:
  Totals* const totals_;
  const uint32_t expected_;
  uint32_t tokens_ = 0;
  bool right_ = true;
};

// An engine, and stages that remember only how long each sequence is.
class Pipeline : public EngineHost {
 public:
  Pipeline(Scale* scale, uint32_t number, uint32_t requests, uint64_t seed);

  void Start();
  void Handle(EventKind kind);
  void SendStep(StepMessage step) override;
  void SendFence(uint64_t epoch) override;
  std::vector<std::string> UnfencedNodes() const override { return {}; }
  EngineCounters counters() const;

 private:
  void Arrive();
  void Look();
  void ScheduleWake();
  nanoseconds Time(uint32_t stage, const StepMessage& step) const;
  ResultMessage ResultOf(const StepMessage& step);

  Scale* const scale_;
  const uint32_t number_;
  uint32_t to_come_;
  uint32_t arrived_ = 0;
  Random random_;
  SequenceNumbers sequence_numbers_;
  std::unique_ptr<Engine> engine_;
  uint64_t fence_ = 0;
  std::array<TimePoint, kScaleStages> free_at_{};
  std::unordered_map<uint64_t, uint32_t> lengths_;  // By generation.
  uint64_t used_pages_ = 0;
  std::deque<ResultMessage> results_;
  std::optional<TimePoint> wake_;
};

class Scale {
 public:
  explicit Scale(const ScaleOptions& options) {
    const uint32_t pipelines = std::max(1u, options.workers / kScaleStages);
    for (uint32_t i = 0; i < pipelines; ++i) {
      const uint32_t requests = options.requests / pipelines + (i < options.requests % pipelines);
      pipelines_.push_back(
          std::make_unique<Pipeline>(this, i, requests, options.seed * 1000003 + i));
    }
  }

  void Run() {
    for (auto& pipeline : pipelines_) {
      pipeline->Start();
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      pipelines_[event.pipeline]->Handle(event.kind);
    }
  }

  void At(TimePoint at, uint32_t pipeline, EventKind kind) {
    events_.push({at, next_order_++, pipeline, kind});
  }
  TimePoint now() const { return now_; }
  EngineCounters Counters() const {
    EngineCounters sum;
    for (const auto& pipeline : pipelines_) {
      const EngineCounters counters = pipeline->counters();
      sum.steps_committed += counters.steps_committed;
      sum.rows_committed += counters.rows_committed;
      sum.preemptions += counters.preemptions;
      sum.faults += counters.faults;
      sum.refused += counters.refused;
    }
    return sum;
  }

  Totals totals;

 private:
  TimePoint now_ = std::chrono::seconds(1000);
  uint64_t next_order_ = 0;
  std::vector<std::unique_ptr<Pipeline>> pipelines_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

Pipeline::Pipeline(Scale* scale, uint32_t number, uint32_t requests, uint64_t seed)
    : scale_(scale),
      number_(number),
      to_come_(requests),
      random_(seed),
      sequence_numbers_(number + 1) {
  EngineConfig config;
  config.deployment = number + 1;
  for (uint32_t s = 0; s < kScaleStages; ++s) {
    config.stages.push_back({"p" + std::to_string(number) + "s" + std::to_string(s), {kPages}, 1});
  }
  config.kv_groups = {KvGroupSpec{}};
  config.vocab = kVocab;
  config.context = 4096;
  config.max_queued_requests = 1u << 20;
  config.prefix_cache = false;  // No two prompts begin alike.
  engine_ = std::make_unique<Engine>(std::move(config), &sequence_numbers_, this);
}

void Pipeline::Start() {
  engine_->Start(scale_->now());
  scale_->At(scale_->now(), number_, EventKind::kArrival);
  scale_->At(scale_->now() + kLookPause, number_, EventKind::kLook);
}

void Pipeline::Handle(EventKind kind) {
  switch (kind) {
    case EventKind::kArrival:
      Arrive();
      break;
    case EventKind::kFenced:
      engine_->OnFenced(fence_, scale_->now());
      break;
    case EventKind::kResult: {
      ResultMessage result = std::move(results_.front());
      results_.pop_front();
      engine_->OnResult(std::move(result), scale_->now());
      break;
    }
    case EventKind::kWake:
      if (wake_ == scale_->now()) {
        wake_.reset();
        engine_->Tick(scale_->now());
      }
      break;
    case EventKind::kLook:
      Look();
      break;
  }
  ScheduleWake();
}

void Pipeline::Arrive() {
  if (to_come_ == 0) {
    return;
  }
  --to_come_;
  SessionRequest request;
  request.request_id = "r" + std::to_string(arrived_++);
  request.key = request.request_id;
  const uint32_t length = random_.OneIn(8) ? random_.Between(500, 1500) : random_.Between(1, 300);
  for (uint32_t i = 0; i < length; ++i) {
    request.prompt.push_back(random_.Below(kVocab));
  }
  request.max_tokens = random_.OneIn(3) ? random_.Between(100, 500) : random_.Between(1, 60);
  request.priority = random_.OneIn(10) ? 1 : 0;
  request.cache_salt = "tenant " + std::to_string(random_.Below(5));
  request.guaranteed = random_.OneIn(20);
  request.params = GreedyParams();
  auto sink = std::make_shared<CountingSink>(&scale_->totals, request.max_tokens);
  if (!engine_->Submit(std::move(request), std::move(sink), scale_->now()).ok()) {
    ++scale_->totals.failed;
  }
  scale_->At(scale_->now() + milliseconds(random_.Below(2 * kMeanPauseMs)), number_,
             EventKind::kArrival);
}

void Pipeline::Look() {
  const EngineSnapshot snapshot = engine_->Snapshot(scale_->now());
  if (std::any_of(snapshot.sessions.begin(), snapshot.sessions.end(),
                  [](const SessionSnapshot& session) {
                    return session.state == "queued" || session.state == "preempted";
                  })) {
    scale_->totals.live_share +=
        static_cast<double>(snapshot.kv[0].live) / static_cast<double>(snapshot.kv[0].total);
    ++scale_->totals.looks;
  }
  if (to_come_ > 0 || !snapshot.sessions.empty()) {
    scale_->At(scale_->now() + kLookPause, number_, EventKind::kLook);
  }
}

void Pipeline::ScheduleWake() {
  const std::optional<TimePoint> wake = engine_->NextWake();
  // One that is asked for too early asks again.
  if (wake.has_value() && (!wake_.has_value() || *wake < *wake_)) {
    wake_ = std::max(*wake, scale_->now());
    scale_->At(*wake_, number_, EventKind::kWake);
  }
}

void Pipeline::SendFence(uint64_t epoch) {
  fence_ = epoch;
  scale_->At(scale_->now() + milliseconds(1), number_, EventKind::kFenced);
}

nanoseconds Pipeline::Time(uint32_t stage, const StepMessage& step) const {
  double attended = 0;
  for (const v1::StepItem& item : step.header.items()) {
    attended += item.token_ids_size() * (item.position() + 0.5 * item.token_ids_size());
  }
  const double ms = 4 + 0.4 * (1 + 0.1 * stage) * step.header.rows() + 1e-4 * attended;
  return nanoseconds(static_cast<int64_t>(ms * 1e6));
}

// In the order of steps a stage works as soon as it is free and the one before it is done.
void Pipeline::SendStep(StepMessage step) {
  results_.push_back(ResultOf(step));
  TimePoint at = scale_->now();
  for (uint32_t s = 0; s < kScaleStages; ++s) {
    const nanoseconds takes = Time(s, step);
    at = free_at_[s] = std::max(at + kHop, free_at_[s]) + takes;
    results_.back().header.mutable_stages(static_cast<int>(s))->set_compute_ms(ToMs(takes));
  }
  scale_->At(at + kHop, number_, EventKind::kResult);
}

ResultMessage Pipeline::ResultOf(const StepMessage& step) {
  const auto pages = [](uint32_t length) {
    return (uint64_t{length} + kPageTokens - 1) / kPageTokens;
  };
  ResultMessage result;
  v1::StepResult& header = result.header;
  header.set_deployment(step.header.deployment());
  header.set_epoch(step.header.epoch());
  header.set_step(step.header.step());
  for (const v1::StepCommand& command : step.header.commands()) {
    header.add_commands();
    const auto it = lengths_.find(command.release().sequence().generation());
    STRATA_CHECK(it != lengths_.end());
    used_pages_ -= pages(it->second);
    lengths_.erase(it);
  }
  for (const v1::StepItem& item : step.header.items()) {
    uint32_t& length = lengths_[item.sequence().generation()];
    STRATA_CHECK(length == item.position());
    used_pages_ -= pages(length);
    length += static_cast<uint32_t>(item.token_ids_size());
    used_pages_ += pages(length);
    v1::ItemResult* out = header.add_items();
    *out->mutable_sequence() = item.sequence();
    if (item.sample()) {
      out->add_tokens()->set_token_id(length % kVocab);
    }
  }
  scale_->totals.overflows += used_pages_ > kPages ? 1 : 0;
  for (uint32_t s = 0; s < kScaleStages; ++s) {
    v1::StageKv* kv = header.add_stages();
    kv->set_stage(s);
    kv->add_free_pages(kPages - std::min<uint64_t>(kPages, used_pages_));
    kv->add_total_pages(kPages);
  }
  return result;
}

EngineCounters Pipeline::counters() const { return engine_->Snapshot(scale_->now()).counters; }

}  // namespace

bool RunScale(const ScaleOptions& options) {
  const std::clock_t began = std::clock();
  Scale scale(options);
  const TimePoint start = scale.now();
  scale.Run();
  const double cpu = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  const double simulated = ToMs(scale.now() - start) / 1000;
  const Totals& totals = scale.totals;
  const EngineCounters counters = scale.Counters();
  const double share =
      totals.looks == 0 ? 1 : totals.live_share / static_cast<double>(totals.looks);
  std::printf(
      "%u workers in pipelines of %u, %u requests: %llu answered, %llu tokens generated in %.0f s "
      "of simulated time\n"
      "  %llu steps, %llu rows, %llu preemptions; %.1f %% of the pages live while any waited\n"
      "  %.1f s of processor time: %.0f requests/s, %.0f steps/s, %.0f rows/s\n",
      options.workers, kScaleStages, options.requests,
      static_cast<unsigned long long>(totals.answered),
      static_cast<unsigned long long>(totals.tokens), simulated,
      static_cast<unsigned long long>(counters.steps_committed),
      static_cast<unsigned long long>(counters.rows_committed),
      static_cast<unsigned long long>(counters.preemptions), 100 * share, cpu,
      options.requests / cpu, static_cast<double>(counters.steps_committed) / cpu,
      static_cast<double>(counters.rows_committed) / cpu);
  if (totals.answered != options.requests || counters.faults + totals.overflows > 0 ||
      share < 0.8) {
    std::printf(
        "FAILED: %llu requests not answered whole, %llu faults, %llu steps that overflowed "
        "a pool, or too few pages live\n",
        static_cast<unsigned long long>(options.requests - totals.answered),
        static_cast<unsigned long long>(counters.faults),
        static_cast<unsigned long long>(totals.overflows));
    return false;
  }
  return true;
}

}  // namespace strata::sim
