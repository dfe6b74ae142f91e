#include "tests/sim/scale.h"

#include <algorithm>
#include <cmath>
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
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/engine/engine.h"
#include "tests/sim/random.h"
#include "tests/sim/scale_machines.h"
#include "tests/sim/scenario.h"

namespace strata::sim {
namespace {

constexpr uint32_t kPages = 1200;  // Of a pool: about 40 requests.
constexpr nanoseconds kHop = std::chrono::microseconds(200);
constexpr nanoseconds kLookPause = std::chrono::seconds(2);
// Requests of a pipeline come this fast; it serves them more slowly.
constexpr uint32_t kMeanPauseMs = 150;
// Of the workers, this many in a hundred are spare where workers are lost.
constexpr uint32_t kSparePercent = 6;
constexpr nanoseconds kAskAgain = std::chrono::seconds(5);
// How long pages may take to be live again behind an outage.
constexpr nanoseconds kFillsAgain = std::chrono::seconds(10);

enum class EventKind {
  kArrival,
  kFenced,
  kResult,
  kWake,
  kLook,
  // Of a pipeline that has lost a worker: that is known now; the layers are loaded elsewhere.
  kDetected,
  kLoaded,
  // Of a worker.
  kLose,
  kReturn,
};

struct Event {
  TimePoint at{0};
  uint64_t order = 0;     // Among those at the same time.
  uint32_t pipeline = 0;  // Or worker.
  EventKind kind{};
  uint32_t life = 0;  // Of the pipeline; what an earlier one was to bring does not come.
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
  uint64_t losses = 0;  // Of workers that served.
  uint64_t moves = 0;
  uint64_t no_place = 0;
  double out_of_work_s = 0;  // Of pipelines, in all.
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
  void Handle(const Event& event);
  // A worker of it is gone; nobody knows yet.
  void Lose();
  bool idle() const { return to_come_ == 0 && engine_->live_sessions() == 0; }
  void SendStep(StepMessage step) override;
  void SendFence(uint64_t epoch) override;
  std::vector<std::string> UnfencedNodes() const override { return {}; }
  EngineCounters counters() const;

 private:
  void Arrive();
  void Look();
  void ScheduleWake();
  void At(nanoseconds after, EventKind kind);
  void Replace();
  void Load();
  // Those of the plan, all of whose memory is free.
  std::vector<EngineStage> Stages();
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
  uint32_t life_ = 0;
  bool broken_ = false;
  TimePoint broken_since_{0};
  TimePoint mended_at_{0};
  std::vector<TimePoint> free_at_;                  // By stage.
  std::vector<uint32_t> layers_;                    // By stage.
  std::vector<uint64_t> kv_pages_;                  // By stage.
  std::unordered_map<uint64_t, uint32_t> lengths_;  // By generation.
  uint64_t used_pages_ = 0;
  std::deque<ResultMessage> results_;
  std::optional<TimePoint> wake_;
};

class Scale {
 public:
  explicit Scale(const ScaleOptions& options)
      : workers_(options.workers),
        losses_per_s_(options.losses_percent / 100 * options.workers / 60),
        random_(options.seed),
        machines_(options.workers, PipelinesOf(options), kScaleStages, kPages * kPageTokens) {
    const uint32_t pipelines = PipelinesOf(options);
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
    ScheduleLoss();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      last_result_ = event.kind == EventKind::kResult ? now_ : last_result_;
      switch (event.kind) {
        case EventKind::kLose:
          LoseOne();
          break;
        case EventKind::kReturn:
          machines_.Return(event.pipeline);
          break;
        default:
          pipelines_[event.pipeline]->Handle(event);
      }
    }
  }

  void At(TimePoint at, uint32_t pipeline, EventKind kind, uint32_t life = 0) {
    events_.push({at, next_order_++, pipeline, kind, life});
  }
  ScaleMachines* machines() { return &machines_; }
  TimePoint now() const { return now_; }
  TimePoint last_result() const { return last_result_; }
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
  // A hundredth is spare for each percent; without losses nobody needs one.
  static uint32_t PipelinesOf(const ScaleOptions& options) {
    const double spare = options.losses_percent > 0 ? options.workers * kSparePercent / 100.0 : 0;
    const auto serving = options.workers - static_cast<uint32_t>(std::ceil(spare));
    return std::max(1u, serving / kScaleStages);
  }

  // As long as there is work.
  void ScheduleLoss() {
    const bool done = std::all_of(pipelines_.begin(), pipelines_.end(),
                                  [](const auto& pipeline) { return pipeline->idle(); });
    if (losses_per_s_ > 0 && !done) {
      const double drawn = (1.0 + random_.Below(1 << 20)) / (1 << 20);
      At(now_ + nanoseconds(static_cast<int64_t>(-std::log(drawn) / losses_per_s_ * 1e9)), 0,
         EventKind::kLose);
    }
  }

  void LoseOne() {
    if (const uint32_t worker = random_.Below(workers_); !machines_.away(worker)) {
      At(now_ + std::chrono::seconds(random_.Between(20, 60)), worker, EventKind::kReturn);
      if (const std::optional<uint32_t> pipeline = machines_.Lose(worker); pipeline.has_value()) {
        ++totals.losses;
        pipelines_[*pipeline]->Lose();
      }
    }
    ScheduleLoss();
  }

  const uint32_t workers_;
  const double losses_per_s_;
  Random random_;
  ScaleMachines machines_;
  TimePoint now_ = std::chrono::seconds(1000);
  TimePoint last_result_ = now_;
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
  config.stages = Stages();
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

void Pipeline::At(nanoseconds after, EventKind kind) {
  scale_->At(scale_->now() + after, number_, kind, life_);
}

std::vector<EngineStage> Pipeline::Stages() {
  std::vector<EngineStage> stages;
  layers_.clear();
  kv_pages_.clear();
  for (const v1::PlanStage& stage : OnlyPipeline(scale_->machines()->plan(number_)).stages()) {
    stages.push_back({OnlyRank(stage).node(), {stage.kv_pages(0)}, 1});
    layers_.push_back(stage.last_layer() - stage.first_layer() + 1);
    kv_pages_.push_back(stage.kv_pages(0));
  }
  free_at_.assign(stages.size(), scale_->now());
  lengths_.clear();
  used_pages_ = 0;
  return stages;
}

void Pipeline::Lose() {
  ++life_;  // What is on its way does not arrive, nor are layers loaded with it.
  results_.clear();
  if (!broken_) {
    broken_since_ = scale_->now();
  }
  broken_ = true;
  // A process that ends breaks its connections; a machine that is off lets its lease lapse.
  At(milliseconds(random_.OneIn(2) ? 10 : random_.Between(1000, 5000)), EventKind::kDetected);
}

void Pipeline::Replace() {
  engine_->LoseStages(absl::UnavailableError("a worker is lost"), std::chrono::hours(1),
                      scale_->now());
  if (scale_->machines()->Replace(number_).ok()) {
    At(milliseconds(random_.Between(1000, 8000)), EventKind::kLoaded);
  } else {
    ++scale_->totals.no_place;
    At(kAskAgain, EventKind::kDetected);
  }
}

void Pipeline::Load() {
  ++scale_->totals.moves;
  broken_ = false;
  mended_at_ = scale_->now();
  scale_->totals.out_of_work_s += ToMs(scale_->now() - broken_since_) / 1000;
  engine_->Suspend(Stages(), scale_->now());
  engine_->Resume(engine_->epoch() + 1, scale_->now());
}

void Pipeline::Handle(const Event& event) {
  const bool of_this_life = event.life == life_;
  switch (event.kind) {
    case EventKind::kArrival:
      Arrive();
      break;
    case EventKind::kFenced:
      if (of_this_life && !broken_) {
        engine_->OnFenced(fence_, scale_->now());
      }
      break;
    case EventKind::kResult: {
      if (!of_this_life) {
        return;
      }
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
    case EventKind::kDetected:
      if (of_this_life) {
        Replace();
      }
      break;
    case EventKind::kLoaded:
      if (of_this_life) {
        Load();
      }
      break;
    case EventKind::kLose:
    case EventKind::kReturn:
      break;  // Of workers.
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
  const bool fills = broken_ || scale_->now() < mended_at_ + kFillsAgain;
  if (!fills && std::any_of(snapshot.sessions.begin(), snapshot.sessions.end(),
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
  At(milliseconds(1), EventKind::kFenced);
}

nanoseconds Pipeline::Time(uint32_t stage, const StepMessage& step) const {
  double attended = 0;
  for (const v1::StepItem& item : step.header.items()) {
    attended += item.token_ids_size() * (item.position() + 0.5 * item.token_ids_size());
  }
  const double share = layers_[stage] / 8.0;  // Of a stage as they are at first.
  const double ms = share * (4 + 0.4 * (1 + 0.1 * stage) * step.header.rows() + 1e-4 * attended);
  return nanoseconds(static_cast<int64_t>(ms * 1e6));
}

// In the order of steps a stage works as soon as it is free and the one before it is done.
void Pipeline::SendStep(StepMessage step) {
  if (broken_) {
    return;
  }
  results_.push_back(ResultOf(step));
  TimePoint at = scale_->now();
  for (uint32_t s = 0; s < layers_.size(); ++s) {
    const nanoseconds takes = Time(s, step);
    at = free_at_[s] = std::max(at + kHop, free_at_[s]) + takes;
    results_.back().header.mutable_stages(static_cast<int>(s))->set_compute_ms(ToMs(takes));
  }
  scale_->At(at + kHop, number_, EventKind::kResult, life_);
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
  for (uint32_t s = 0; s < layers_.size(); ++s) {
    scale_->totals.overflows += used_pages_ > kv_pages_[s] ? 1 : 0;
    v1::StageKv* kv = header.add_stages();
    kv->set_stage(s);
    kv->add_free_pages(kv_pages_[s] - std::min(kv_pages_[s], used_pages_));
    kv->add_total_pages(kv_pages_[s]);
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
  const double simulated = ToMs(scale.last_result() - start) / 1000;
  const Totals& totals = scale.totals;
  const EngineCounters counters = scale.Counters();
  const double share =
      totals.looks == 0 ? 1 : totals.live_share / static_cast<double>(totals.looks);
  std::printf(
      "%u workers in pipelines of %u, %u requests: %llu answered, %llu tokens generated in %.0f s "
      "of simulated time\n"
      "  %llu steps, %llu rows, %llu preemptions; %.1f %% of the pages live while any waited\n"
      "  %llu workers that served were lost: %llu moves, %llu times no place, %.1f s out of work "
      "at "
      "the mean, %.1f ms to plan one\n"
      "  %.1f s of processor time: %.0f requests/s, %.0f steps/s, %.0f rows/s\n",
      options.workers, kScaleStages, options.requests,
      static_cast<unsigned long long>(totals.answered),
      static_cast<unsigned long long>(totals.tokens), simulated,
      static_cast<unsigned long long>(counters.steps_committed),
      static_cast<unsigned long long>(counters.rows_committed),
      static_cast<unsigned long long>(counters.preemptions), 100 * share,
      static_cast<unsigned long long>(totals.losses), static_cast<unsigned long long>(totals.moves),
      static_cast<unsigned long long>(totals.no_place),
      totals.out_of_work_s / static_cast<double>(std::max<uint64_t>(1, totals.moves)),
      1000 * scale.machines()->planning_s() /
          static_cast<double>(std::max<uint64_t>(1, totals.moves + totals.no_place)),
      cpu, options.requests / cpu, static_cast<double>(counters.steps_committed) / cpu,
      static_cast<double>(counters.rows_committed) / cpu);
  const uint64_t faults =
      options.losses_percent > 0 ? 0 : counters.faults;  // Else they are expected.
  if (totals.answered != options.requests || faults + totals.overflows > 0 || share < 0.8) {
    std::printf(
        "FAILED: %llu requests not answered whole, %llu faults, %llu steps that overflowed "
        "a pool, or too few pages live\n",
        static_cast<unsigned long long>(options.requests - totals.answered),
        static_cast<unsigned long long>(faults), static_cast<unsigned long long>(totals.overflows));
    return false;
  }
  return true;
}

}  // namespace strata::sim
