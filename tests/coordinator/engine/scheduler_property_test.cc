// What the scheduler must keep whatever comes: random sessions over a pipeline that takes the time
// that was predicted.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "coordinator/engine/fair_shares.h"
#include "coordinator/engine/scheduler.h"
#include "coordinator/engine/step_pace.h"

namespace strata {
namespace {

struct Job {
  uint32_t prompt = 0;
  uint32_t answer = 0;
  int32_t priority = 0;
  uint32_t tenant = 0;
  bool wants_logits = false;
  uint32_t sent = 0;
  uint32_t known = 0;  // Prompt and committed tokens.
  uint64_t last_step = 0;
  uint64_t waited = 0;  // Steps since its newest item, while it was ready.

  bool decoding() const { return known > prompt && sent + 1 >= known; }
  bool done() const { return known == prompt + answer; }
};

class Pipeline {
 public:
  explicit Pipeline(uint64_t seed) : random_(seed) {
    view_.stages = 1 + Below(5);
    view_.token_budget = 1 + (Below(4) == 0 ? Below(4) : Below(200));
    view_.max_items = 1 + (Below(4) == 0 ? Below(4) : Below(30));
    view_.max_logits_rows = 1 + Below(20);
    for (uint32_t s = 0; s < view_.stages && seed % 5 != 0; ++s) {
      view_.costs.push_back(
          StageCost::Line(1.0 + Below(20), 0.1 * (1 + Below(10)), 0.0001 * Below(20)));
    }
    for (size_t s = 0; s < view_.costs.size() && view_.stages > 1 && seed % 3 == 0; ++s) {
      view_.costs_alone.push_back(StageCost::Line(1.0 + Below(10), 0.1 * (1 + Below(10))));
    }
    view_.hop_ms = 0.1 * Below(50);
    view_.inter_token_ms = Below(2) * (20.0 + Below(200));
    view_.most_step_ms = 100 + Below(1000);
    for (const char* tenant : {"", "a", "b"}) {
      shares_.Enter(tenant);
    }
  }

  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

  uint64_t Add(const Job& job) {
    jobs_[++last_id_] = job;
    jobs_[last_id_].known = std::max(job.known, job.prompt);
    return last_id_;
  }

  SchedulerSnapshot Snapshot() {
    SchedulerSnapshot view = view_;
    view.steps_in_flight = static_cast<uint32_t>(in_flight_.size());
    view.last_decode_step = last_decode_step_;
    view.last_prefill_step = last_prefill_step_;
    std::vector<uint32_t> waiting;
    for (int32_t priority = 2; priority >= 0; --priority) {
      for (const auto& [id, job] : jobs_) {
        if (job.priority != priority) {
          continue;
        }
        view.decoding += job.decoding() ? 1 : 0;
        view.decoding_attended += job.decoding() ? job.known : 0;
        if (job.sent < job.known) {
          view.ready.push_back({.id = id,
                                .pending = job.known - job.sent,
                                .position = job.sent,
                                .decoding = job.decoding(),
                                .wants_logits = job.wants_logits,
                                .last_step = job.last_step,
                                .priority = job.priority,
                                .tenant = job.tenant});
          if (!job.decoding()) {
            waiting.push_back(job.tenant);
          }
        }
      }
    }
    shares_.SetWaiting(waiting);
    view.served = shares_.served();
    return view;
  }

  // Sends what may be sent; checks each step.
  void Send() {
    while (in_flight_.size() <= view_.stages) {
      const SchedulerSnapshot view = Snapshot();
      const std::vector<ScheduledItem> items = ScheduleStep(view).items;
      if (items.empty()) {
        const StepPace pace = PaceOf(view);
        EXPECT_TRUE(view.ready.empty() ||
                    view.steps_in_flight >= (pace.prompts_apart ? view.stages : pace.slots))
            << "a stage is idle, and there is work";
        return;
      }
      Check(view, items);
      ++step_;
      for (auto& [id, job] : jobs_) {
        job.waited += job.sent < job.known ? 1 : 0;
      }
      for (const ScheduledItem& item : items) {
        Take(jobs_.at(item.id), item.tokens);
      }
      in_flight_.push_back(items);
    }
  }

  void CommitOne() {
    if (in_flight_.empty()) {
      return;
    }
    const std::vector<ScheduledItem> items = std::move(in_flight_.front());
    in_flight_.pop_front();
    for (const ScheduledItem& item : items) {
      Job& job = jobs_.at(item.id);
      const bool more = std::any_of(in_flight_.begin(), in_flight_.end(), [&](const auto& step) {
        return std::any_of(step.begin(), step.end(),
                           [&](const ScheduledItem& other) { return other.id == item.id; });
      });
      if (job.sent == job.known && !more) {
        ++job.known;
        if (job.done()) {
          jobs_.erase(item.id);
        }
      }
    }
  }

  size_t jobs() const { return jobs_.size(); }
  SchedulerSnapshot& view() { return view_; }
  uint64_t most_waited() const { return most_waited_; }
  const std::vector<uint64_t>& rows() const { return rows_; }
  const std::deque<std::vector<ScheduledItem>>& in_flight() const { return in_flight_; }
  const Job& job(uint64_t id) const { return jobs_.at(id); }

 private:
  void Take(Job& job, uint32_t tokens) {
    (job.decoding() ? last_decode_step_ : last_prefill_step_) = step_;
    if (!job.decoding()) {
      shares_.Serve(job.tenant, tokens);
      rows_[job.tenant] += tokens;
    }
    job.sent += tokens;
    job.last_step = step_;
    most_waited_ = std::max(most_waited_, job.waited);
    job.waited = 0;
  }

  void Check(const SchedulerSnapshot& view, const std::vector<ScheduledItem>& items) {
    EXPECT_LE(items.size(), view.max_items);
    uint32_t rows = 0;
    uint32_t logits_rows = 0;
    uint32_t decode_items = 0;
    uint32_t prefill_rows = 0;
    StepWork work;
    std::set<uint64_t> ids;
    for (const ScheduledItem& item : items) {
      const Job& job = jobs_.at(item.id);
      ASSERT_TRUE(ids.insert(item.id).second) << "twice in a step";
      ASSERT_GT(item.tokens, 0u);
      ASSERT_LE(item.tokens, job.known - job.sent);
      rows += item.tokens;
      logits_rows += job.wants_logits ? item.tokens : 0;
      work.rows += item.tokens;
      work.attended += Attended(job.sent, item.tokens);
      if (job.decoding()) {
        EXPECT_EQ(prefill_rows, 0u) << "decode first";
        ++decode_items;
      } else {
        prefill_rows += item.tokens;
      }
    }
    EXPECT_LE(rows, view.token_budget);
    EXPECT_LE(logits_rows, view.max_logits_rows);
    const StepPace pace = PaceOf(view);
    EXPECT_LE(decode_items, (view.decoding + pace.batches - 1) / pace.batches) << "an even share";
    if (pace.prompts_apart) {
      EXPECT_TRUE(decode_items == 0 || prefill_rows == 0) << "prompts are apart";
    }
    if (prefill_rows > 1) {
      EXPECT_LE(SlowestMs(view, work), pace.step_ms + 1e-9);
    }
    EXPECT_EQ(ScheduleStep(view).items.size(), items.size()) << "the same every time";
  }

  std::mt19937_64 random_;
  SchedulerSnapshot view_;  // What does not change.
  FairShares shares_;
  std::vector<uint64_t> rows_ = std::vector<uint64_t>(3);  // Of prompts, by tenant.
  std::map<uint64_t, Job> jobs_;
  std::deque<std::vector<ScheduledItem>> in_flight_;
  uint64_t last_id_ = 0;
  uint64_t step_ = 0;
  uint64_t last_decode_step_ = 0;
  uint64_t last_prefill_step_ = 0;
  uint64_t most_waited_ = 0;
};

TEST(SchedulerProperty, EverythingEndsWithinItsBounds) {
  for (uint64_t seed = 1; seed <= 300 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Pipeline pipeline(seed);
    for (int i = 0; i < 3000; ++i) {
      if (i < 1000 && pipeline.jobs() < 30 && pipeline.Below(10) == 0) {
        pipeline.Add({.prompt = 1 + pipeline.Below(400),
                      .answer = 1 + pipeline.Below(30),
                      .priority = static_cast<int32_t>(pipeline.Below(3)),
                      .tenant = pipeline.Below(3),
                      .wants_logits = pipeline.Below(6) == 0});
      }
      pipeline.Send();
      pipeline.CommitOne();
    }
    for (int i = 0; i < 100000 && pipeline.jobs() > 0; ++i) {
      pipeline.Send();
      pipeline.CommitOne();
    }
    EXPECT_EQ(pipeline.jobs(), 0u);
  }
}

TEST(SchedulerProperty, NobodyOfOnePriorityStarves) {
  for (uint64_t seed = 1; seed <= 100 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Pipeline pipeline(seed);
    for (int i = 0; i < 10000; ++i) {
      while (pipeline.jobs() < 12) {  // Long and short prompts without end.
        pipeline.Add({.prompt = pipeline.Below(2) == 0 ? 300u : 5u,
                      .answer = 1 + pipeline.Below(10),
                      .tenant = pipeline.Below(2),
                      .wants_logits = pipeline.Below(12) == 0});
      }
      pipeline.Send();
      pipeline.CommitOne();
    }
    // All prompts that were there before it row by row, each beside a step of answers.
    EXPECT_LT(pipeline.most_waited(), 12u * (300 + 10) * 2);
  }
}

TEST(SchedulerProperty, PromptsGoOnBesideAnswersThatFillEveryStep) {
  for (const uint32_t limit : {1u, 2u, 4u, 16u}) {
    for (const bool items : {false, true}) {
      SCOPED_TRACE(limit);
      Pipeline pipeline(5);  // Nothing is known of the stages.
      (items ? pipeline.view().max_items : pipeline.view().token_budget) = limit;
      (items ? pipeline.view().token_budget : pipeline.view().max_items) = 100;
      for (int i = 0; i < 100; ++i) {
        pipeline.Add({.prompt = 1, .answer = 1000000, .sent = 1, .known = 2});
      }
      for (int i = 0; i < 20; ++i) {
        pipeline.Send();
        pipeline.CommitOne();
      }
      const uint64_t prompt = pipeline.Add({.prompt = 10, .answer = 100});
      for (int i = 0; i < 200; ++i) {
        pipeline.Send();
        pipeline.CommitOne();
      }
      EXPECT_EQ(pipeline.job(prompt).sent >= 10, true) << pipeline.job(prompt).sent;
      EXPECT_LT(pipeline.most_waited(), 1000u) << "and answers beside it";
    }
  }
}

TEST(SchedulerProperty, TenantsThatAlwaysHavePromptsGetEqualShares) {
  for (uint64_t seed = 1; seed <= 100 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Pipeline pipeline(seed);
    for (int i = 0; i < 30; ++i) {  // The greedy tenant has ten times as many, and came first.
      pipeline.Add({.prompt = 20000, .answer = 1, .tenant = i >= 27 ? 0u : 1u});
    }
    for (int i = 0; i < 50; ++i) {
      pipeline.Send();
      pipeline.CommitOne();
    }
    const uint64_t a = pipeline.rows()[0];
    const uint64_t b = pipeline.rows()[1];
    EXPECT_LE(std::max(a, b) - std::min(a, b), pipeline.view().token_budget);
    EXPECT_GT(a, 0u);
  }
}

TEST(SchedulerProperty, HigherPrioritiesComeBeforeShares) {
  Pipeline pipeline(7);
  const uint64_t urgent = pipeline.Add({.prompt = 3000, .answer = 1, .priority = 1, .tenant = 1});
  const uint64_t other = pipeline.Add({.prompt = 3000, .answer = 1, .tenant = 0});
  while (pipeline.job(urgent).sent < 3000) {
    pipeline.Send();
    EXPECT_TRUE(pipeline.job(other).sent == 0 || pipeline.job(urgent).sent == 3000);
    pipeline.CommitOne();
  }
}

// Sessions with long contexts that began together do not stay together.
TEST(SchedulerProperty, MicroBatchesBecomeEvenByTime) {
  for (uint32_t stages = 2; stages <= 4; ++stages) {
    SCOPED_TRACE(stages);
    Pipeline pipeline(5);
    SchedulerSnapshot& view = pipeline.view();
    view.stages = stages;
    view.token_budget = view.max_items = 100;
    view.hop_ms = 0;
    view.costs.assign(stages, StageCost::Line(20, 1, 0.002));
    // Admitted one after the other, so that each micro-batch has what came together.
    for (uint32_t batch = 0; batch < stages; ++batch) {
      for (int i = 0; i < 4; ++i) {
        const uint32_t prompt = batch == 0 ? 6000 : 100;
        pipeline.Add({.prompt = prompt, .answer = 100000, .sent = prompt, .known = prompt + 1});
      }
      pipeline.Send();
    }
    for (int i = 0; i < 100; ++i) {
      pipeline.Send();
      pipeline.CommitOne();
    }
    pipeline.Send();
    double least = 1e9;
    double most = 0;
    for (const std::vector<ScheduledItem>& items : pipeline.in_flight()) {
      StepWork work;
      for (const ScheduledItem& item : items) {
        work.rows += item.tokens;
        work.attended += pipeline.job(item.id).sent;
      }
      least = std::min(least, SlowestMs(view, work));
      most = std::max(most, SlowestMs(view, work));
    }
    EXPECT_LE(most - least, 12.0 + 2) << "one session with a long context, or a few short ones";
  }
}

TEST(StepPace, AsManyMicroBatchesAsPay) {
  SchedulerSnapshot view;
  view.stages = 2;
  view.decoding = 32;
  view.costs.assign(2, StageCost::Line(16, 2.3));
  view.hop_ms = 0.1;
  EXPECT_EQ(PaceOf(view).batches, 2u) << "a third would make all smaller, and hide 0.3 ms";
  view.hop_ms = 20;
  view.costs.assign(2, StageCost::Line(1, 2.3));
  EXPECT_EQ(PaceOf(view).batches, 3u) << "slow links, and rows that cost the same in any batch";
  view.hop_ms = 0;
  view.costs = {StageCost::Line(40, 0.1), StageCost::Line(4, 0.1)};
  EXPECT_EQ(PaceOf(view).batches, 1u) << "one stage has nearly all of the work";
  view.decoding = 1;
  EXPECT_EQ(PaceOf(view).batches, 1u);
  view.costs.clear();
  view.decoding = 32;
  EXPECT_EQ(PaceOf(view).batches, 2u) << "as long as nothing is known";
}

// Two micro-batches of four: 2 x 24 ms. One of eight: 2 x 28 ms, or less where it has the memory of
// a machine to itself.
TEST(StepPace, OneMicroBatchTakesWhatStepsTakeThatAreAlone) {
  SchedulerSnapshot view;
  view.stages = 2;
  view.decoding = 8;
  view.costs.assign(2, StageCost::Line(20, 1));
  EXPECT_EQ(PaceOf(view).batches, 2u);
  view.costs_alone.assign(2, StageCost::Line(12, 1));
  EXPECT_EQ(PaceOf(view).batches, 1u);
  view.inter_token_ms = 1;
  EXPECT_NEAR(PaceOf(view).step_ms, kMostSlowdown * 40 / 2, 1e-9);
}

TEST(StepPace, SessionsStayTogetherOrApartUntilTheOtherWayIsPlainlyShorter) {
  SchedulerSnapshot view;
  view.stages = 2;
  view.decoding = 8;
  view.costs.assign(2, StageCost::Line(20, 1));
  for (const double fixed_ms : {15.8, 16.2}) {  // 47.6 and 48.4 ms where two take 48.
    view.costs_alone.assign(2, StageCost::Line(fixed_ms, 1));
    view.together = true;
    EXPECT_EQ(PaceOf(view).batches, 1u) << fixed_ms;
    view.together = false;
    EXPECT_EQ(PaceOf(view).batches, 2u) << fixed_ms;
  }
  view.costs_alone.assign(2, StageCost::Line(18, 1));
  view.together = true;
  EXPECT_EQ(PaceOf(view).batches, 2u);
}

TEST(StepPace, WhatIsNotKnownIsTriedIfItMayWellBeShorter) {
  SchedulerSnapshot view;
  view.stages = 2;
  view.decoding = 8;
  view.costs.assign(2, StageCost::Line(20, 1));
  view.costs_alone = view.costs;
  EXPECT_EQ(PaceOf(view).batches, 2u);
  for (StageCost& cost : view.costs_alone) {
    cost.doubt.own.fill(0.09);
    cost.doubt.with_next.fill(0.09);
  }
  EXPECT_EQ(PaceOf(view).batches, 1u) << "56 ms, or 41 by a standard deviation less";
  view.inter_token_ms = 1;
  EXPECT_NEAR(PaceOf(view).step_ms, kMostSlowdown * 56 / 2, 1e-9) << "what is expected counts";
}

// Eight rows are read as fast as one, sixteen take half as long again, and many more little.
StageCost FewRowsForNothing() {
  StageCost cost;
  cost.ms = {33, 34, 35, 39, 55, 72, 103, 200, 390, 780, 1560, 3120};
  return cost;
}

// Two stages and eight sessions that decode, all ready, beside a long prompt.
SchedulerSnapshot EightBesideAPrompt(const StageCost& cost) {
  SchedulerSnapshot view;
  view.stages = 2;
  view.token_budget = 512;
  view.max_items = view.max_logits_rows = 100;
  view.inter_token_ms = 20;
  view.costs.assign(2, cost);
  for (uint64_t id = 1; id <= 8; ++id) {
    view.ready.push_back({.id = id, .pending = 1, .position = 10, .decoding = true});
  }
  view.decoding = 8;
  view.ready.push_back({.id = 9, .pending = 1500});
  return view;
}

TEST(StepPace, PromptsHaveStepsToThemselvesWhereThatComputesMoreOfThem) {
  SchedulerSnapshot view = EightBesideAPrompt(FewRowsForNothing());
  const StepPace pace = PaceOf(view);
  EXPECT_EQ(pace.batches, 1u);
  EXPECT_TRUE(pace.prompts_apart);
  EXPECT_NEAR(pace.step_ms, kMostSlowdownApart * 2 * 35 - 39, 1e-9);
  view.costs.assign(2, StageCost::Line(20, 0.25));
  EXPECT_FALSE(PaceOf(view).prompts_apart) << "a row costs the same in any step";
  EXPECT_EQ(PaceOf(view).batches, 2u);
  view = EightBesideAPrompt(FewRowsForNothing());
  view.inter_token_ms = 0;
  EXPECT_FALSE(PaceOf(view).prompts_apart) << "prompts take what they want";
  view = EightBesideAPrompt(FewRowsForNothing());
  view.max_items = 7;
  EXPECT_FALSE(PaceOf(view).prompts_apart) << "a step has no room for all that decode";
  view.max_items = 8;
  view.max_logits_rows = 7;
  EXPECT_FALSE(PaceOf(view).prompts_apart) << "all of them might want logits";
  view = EightBesideAPrompt(FewRowsForNothing());
  view.ready.pop_back();
  EXPECT_FALSE(PaceOf(view).prompts_apart) << "there is no prompt";
  view = EightBesideAPrompt(FewRowsForNothing());
  view.ready.back().pending = 10;
  EXPECT_FALSE(PaceOf(view).prompts_apart) << "one step has all of the prompt";
  for (const uint32_t stages : {1u, 3u}) {
    view = EightBesideAPrompt(FewRowsForNothing());
    view.stages = stages;
    view.costs.assign(stages, FewRowsForNothing());
    EXPECT_FALSE(PaceOf(view).prompts_apart) << "another number of stages than two";
  }
  StageCost cost = FewRowsForNothing();
  cost.ms[3] = 50;
  view = EightBesideAPrompt(cost);
  EXPECT_FALSE(PaceOf(view).prompts_apart) << "all answers at once take longer than the target";
}

// Where stages share a machine answers take turns, alone; beside prompts each of their steps takes
// longer, and no cycle with any keeps the target.
TEST(StepPace, PromptsHaveTheTimeThatAStageWaitsForAnswersOnTheOther) {
  StageCost beside = FewRowsForNothing();
  SchedulerSnapshot view = EightBesideAPrompt(beside);
  StageCost alone = beside;
  for (double& ms : alone.ms) {
    ms *= 0.6;
  }
  view.costs_alone.assign(2, alone);
  const StepPace pace = PaceOf(view);
  ASSERT_LT(kMostSlowdown * 2 * alone.ms[3], 2 * beside.ms[3]);
  EXPECT_EQ(pace.batches, 1u);
  EXPECT_TRUE(pace.prompts_apart);
  EXPECT_NEAR(pace.step_ms, beside.ms[3], 1e-9);
  // Even steps would have one row of the prompt each, and those that decode.
  view.ready.erase(view.ready.begin(), view.ready.begin() + 8);
  view.last_decode_step = 5;
  view.steps_in_flight = 1;
  const std::vector<ScheduledItem> prompt = ScheduleStep(view).items;
  ASSERT_EQ(prompt.size(), 1u);
  EXPECT_EQ(prompt[0].tokens, 8u);
}

// Beside a wave that is as large as a step may be.
SchedulerSnapshot EightBesideAWave() {
  SchedulerSnapshot view = EightBesideAPrompt(FewRowsForNothing());
  view.layers = {11, 11};
  view.max_wave_rows = 64;
  view.wave_rows = view.token_budget = 64;
  view.wave_items = 1;
  view.wave_slices = 2;
  return view;
}

TEST(StepPace, WavesTakeNoRoomFromTheStepOfAnswers) {
  SchedulerSnapshot view = EightBesideAWave();
  view.together = true;
  view.last_decode_step = 4;
  view.last_prefill_step = 5;
  const ScheduledStep answers = ScheduleStep(view);
  EXPECT_EQ(answers.items.size(), 8u);
  EXPECT_EQ(answers.waves, WaveMove::kNone);
  // They are under way: the wave goes on, and nothing joins it.
  view.ready.erase(view.ready.begin(), view.ready.begin() + 8);
  view.last_decode_step = 6;
  view.steps_in_flight = 1;
  ScheduledStep step = ScheduleStep(view);
  EXPECT_TRUE(step.items.empty());
  EXPECT_EQ(step.waves, WaveMove::kOn);
  // Nor while it is on the first stage; else another one begins, in the room that is left.
  view.token_budget = 100;
  EXPECT_TRUE(ScheduleStep(view).items.empty());
  view.wave_may_begin = true;
  step = ScheduleStep(view);
  ASSERT_EQ(step.items.size(), 1u);
  EXPECT_LE(step.items[0].tokens, 36u);
  EXPECT_GT(step.slices, 0u);
  EXPECT_EQ(step.waves, WaveMove::kOn);
}

TEST(StepPace, WhereNothingIsApartAnyMoreWavesAreFinishedInTheRoomOfTheOthers) {
  SchedulerSnapshot view = EightBesideAWave();
  view.max_items = 7;  // No step has room for all that decode.
  ScheduledStep step = ScheduleStep(view);
  EXPECT_EQ(step.waves, WaveMove::kFinish);
  EXPECT_TRUE(step.items.empty());
  view.token_budget = 67;
  step = ScheduleStep(view);
  EXPECT_EQ(step.waves, WaveMove::kFinish);
  EXPECT_EQ(step.items.size(), 3u);
  EXPECT_EQ(step.slices, 0u);
}

TEST(StepPace, AWaveHasNoMoreRowsThanOneMayHave) {
  SchedulerSnapshot view = EightBesideAWave();
  view.wave_rows = view.wave_items = view.wave_slices = 0;
  view.wave_may_begin = true;
  view.token_budget = 512;
  view.max_wave_rows = 40;
  StageCost cost = FewRowsForNothing();
  for (size_t i = 4; i < StageCost::kKnots; ++i) {
    cost.ms[i] = 60 + static_cast<double>(i);  // Many rows for nothing.
  }
  view.costs.assign(2, cost);
  view.together = true;
  view.ready.erase(view.ready.begin(), view.ready.begin() + 8);
  view.steps_in_flight = 1;
  view.last_decode_step = 1;
  const ScheduledStep step = ScheduleStep(view);
  ASSERT_EQ(step.items.size(), 1u);
  EXPECT_GT(step.slices, 1u);
  EXPECT_EQ(step.items[0].tokens, 40u);
}

TEST(StepPace, StepsOfPromptsAndOfAnswersTakeTurns) {
  SchedulerSnapshot view = EightBesideAPrompt(FewRowsForNothing());
  const auto ids = [](const std::vector<ScheduledItem>& items) {
    std::set<uint64_t> ids;
    for (const ScheduledItem& item : items) {
      ids.insert(item.id);
    }
    return ids;
  };
  const std::set<uint64_t> all = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(ids(ScheduleStep(view).items), all);
  view.max_items = 8;
  EXPECT_EQ(ids(ScheduleStep(view).items), all) << "nothing is kept free for prompts";
  // They are under way.
  view.ready.erase(view.ready.begin(), view.ready.begin() + 8);
  view.together = true;
  view.last_decode_step = 5;
  view.last_prefill_step = 4;
  view.steps_in_flight = 2;
  const std::vector<ScheduledItem> prompt = ScheduleStep(view).items;
  EXPECT_EQ(ids(prompt), std::set<uint64_t>{9});
  EXPECT_GT(prompt.at(0).tokens, 14u);
  view.last_prefill_step = 6;
  EXPECT_TRUE(ScheduleStep(view).items.empty()) << "it is the turn of those that decode";
  view.steps_in_flight = 0;
  EXPECT_EQ(ids(ScheduleStep(view).items), std::set<uint64_t>{9}) << "but nothing is under way";
  // Some came back; the others are in a step of their own.
  view = EightBesideAPrompt(FewRowsForNothing());
  view.ready.erase(view.ready.begin() + 3, view.ready.begin() + 8);
  view.steps_in_flight = 1;
  view.last_decode_step = 5;
  EXPECT_EQ(ids(ScheduleStep(view).items), std::set<uint64_t>{9}) << "they wait for the others";
  view.last_prefill_step = 6;
  EXPECT_TRUE(ScheduleStep(view).items.empty());
  view.steps_in_flight = 0;
  EXPECT_EQ(ids(ScheduleStep(view).items), (std::set<uint64_t>{1, 2, 3}))
      << "nobody is to be waited for";
}

TEST(StepPace, AStepsTimeKeepsTheTargetOfTheWholeCycle) {
  SchedulerSnapshot view;
  view.stages = 2;
  view.decoding = 8;
  view.costs.assign(2, StageCost::Line(20, 1));
  view.most_step_ms = 1000;
  EXPECT_EQ(PaceOf(view).step_ms, 1000) << "no target";
  view.inter_token_ms = 100;
  EXPECT_EQ(PaceOf(view).step_ms, 50);
  view.inter_token_ms = 20;
  EXPECT_NEAR(PaceOf(view).step_ms, kMostSlowdown * 24, 1e-9) << "it takes 48 ms without prompts";
  view.hop_ms = 10;
  EXPECT_NEAR(PaceOf(view).step_ms, (kMostSlowdown * (48 + 30) - 30) / 2, 1e-9);
  view.decoding = 0;
  EXPECT_EQ(PaceOf(view).step_ms, 1000);
}

TEST(StepPace, RowsThatWereNotSeenForLongAreTriedIfTheyMayWellFit) {
  SchedulerSnapshot view = EightBesideAPrompt(FewRowsForNothing());
  ASSERT_EQ(RowsInTime(view, {}, 0, 512, 50), 13u) << "39 ms of 8, 55 of 16";
  for (StageCost& cost : view.costs) {
    cost.doubt.own.fill(0.01);
    cost.doubt.with_next.fill(0.01);
  }
  EXPECT_EQ(RowsInTime(view, {}, 0, 512, 50), 13u) << "as sure as what is seen all the time";
  for (StageCost& cost : view.costs) {
    cost.doubt.own[4] = 0.16;
  }
  EXPECT_EQ(RowsInTime(view, {}, 0, 512, 50), 20u) << "59 ms, or 49 by what it is less sure";
}

TEST(StepPace, ChunksShrinkAsThePrefixGrows) {
  SchedulerSnapshot view;
  view.stages = 1;
  view.decoding = 4;
  view.token_budget = 512;
  view.max_items = view.max_logits_rows = 100;
  view.costs.assign(1, StageCost::Line(20, 1, 0.001));
  view.inter_token_ms = 100;
  uint32_t before = 512;
  for (const uint32_t position : {0u, 1000u, 4000u, 30000u, 1000000u}) {
    view.ready = {{.id = 1, .pending = 2000, .position = position}};
    const std::vector<ScheduledItem> items = ScheduleStep(view).items;
    ASSERT_EQ(items.size(), 1u);
    EXPECT_LT(items[0].tokens, before);
    before = items[0].tokens;
  }
  EXPECT_EQ(before, 1u) << "but it always goes on";
}

}  // namespace
}  // namespace strata
