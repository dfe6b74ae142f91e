#include "coordinator/engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "coordinator/engine/drafter.h"
#include "coordinator/engine/step_pace.h"

namespace strata {
namespace {

SchedulerSnapshot Snapshot(uint32_t stages, uint32_t in_flight) {
  SchedulerSnapshot snapshot;
  snapshot.stages = stages;
  snapshot.steps_in_flight = in_flight;
  snapshot.token_budget = 512;
  snapshot.max_items = 64;
  snapshot.max_logits_rows = 1000;
  return snapshot;
}

void AddDecoding(SchedulerSnapshot* snapshot, uint32_t count, uint64_t first_id = 1) {
  for (uint32_t i = 0; i < count; ++i) {
    snapshot->ready.push_back({.id = first_id + i, .pending = 1, .decoding = true});
  }
  snapshot->decoding += count;
}

uint32_t Rows(const std::vector<ScheduledItem>& items) {
  uint32_t rows = 0;
  for (const ScheduledItem& item : items) {
    rows += item.tokens;
  }
  return rows;
}

TEST(Scheduler, DecodeGoesBeforePrefill) {
  SchedulerSnapshot snapshot = Snapshot(1, 0);
  snapshot.ready.push_back({.id = 1, .pending = 40});
  AddDecoding(&snapshot, 3, 2);
  const auto items = ScheduleStep(snapshot).items;
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(items[0].id, 2u);
  EXPECT_EQ(items[3].id, 1u);
  EXPECT_EQ(items[3].tokens, 40u);
}

TEST(Scheduler, SessionsSpreadOverTheStages) {
  for (uint32_t sessions = 1; sessions <= 13; ++sessions) {
    for (uint32_t stages = 1; stages <= 5; ++stages) {
      SchedulerSnapshot snapshot = Snapshot(stages, 0);
      AddDecoding(&snapshot, sessions);
      std::vector<size_t> sizes;
      while (true) {
        const auto items = ScheduleStep(snapshot).items;
        if (items.empty()) {
          break;
        }
        sizes.push_back(items.size());
        snapshot.ready.erase(snapshot.ready.begin(),
                             snapshot.ready.begin() + static_cast<int>(items.size()));
        ++snapshot.steps_in_flight;
      }
      EXPECT_EQ(sizes.size(), std::min(sessions, stages)) << sessions << " over " << stages;
      const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
      EXPECT_LE(*most - *least, 1u) << sessions << " over " << stages;
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), size_t{0}), sessions);
    }
  }
}

TEST(Scheduler, BusyStagesWaitForAFullBatch) {
  SchedulerSnapshot snapshot = Snapshot(2, 2);
  AddDecoding(&snapshot, 1);
  snapshot.decoding = 5;  // Four in flight.
  EXPECT_TRUE(ScheduleStep(snapshot).items.empty());
  AddDecoding(&snapshot, 2, 2);
  snapshot.decoding = 6;
  EXPECT_EQ(ScheduleStep(snapshot).items.size(), 3u);
}

TEST(Scheduler, AMicroBatchStaysWholeWhereMoreStepsThanOneMightBeSent) {
  SchedulerSnapshot snapshot = Snapshot(4, 2);
  AddDecoding(&snapshot, 2);
  snapshot.decoding = 8;  // Four micro-batches; two are in flight, and the fourth is not here yet.
  EXPECT_EQ(ScheduleStep(snapshot).items.size(), 2u);
}

TEST(Scheduler, LongestWaitingDecodesFirst) {
  SchedulerSnapshot snapshot = Snapshot(2, 0);
  for (uint64_t id = 1; id <= 4; ++id) {
    snapshot.ready.push_back({.id = id, .pending = 1, .decoding = true, .last_step = 10 - id});
  }
  snapshot.decoding = 4;
  snapshot.steps_in_flight = 1;
  const auto items = ScheduleStep(snapshot).items;
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].id, 4u);
  EXPECT_EQ(items[1].id, 3u);
}

TEST(Scheduler, KeepsTheBudgetAndCutsPrompts) {
  SchedulerSnapshot snapshot = Snapshot(1, 0);
  snapshot.token_budget = 100;
  AddDecoding(&snapshot, 10);
  snapshot.ready.push_back({.id = 50, .pending = 70});
  snapshot.ready.push_back({.id = 51, .pending = 300});
  const auto items = ScheduleStep(snapshot).items;
  EXPECT_EQ(Rows(items), 100u);
  ASSERT_EQ(items.size(), 12u);
  EXPECT_EQ(items[10].tokens, 70u);
  EXPECT_EQ(items[11].tokens, 20u);
}

TEST(Scheduler, KeepsTheItemLimit) {
  SchedulerSnapshot snapshot = Snapshot(1, 0);
  snapshot.max_items = 5;
  AddDecoding(&snapshot, 4);
  snapshot.ready.push_back({.id = 50, .pending = 7});
  snapshot.ready.push_back({.id = 51, .pending = 7});
  EXPECT_EQ(ScheduleStep(snapshot).items.size(), 5u);
}

TEST(Scheduler, APromptIsCutToFillThePipeline) {
  SchedulerSnapshot snapshot = Snapshot(4, 0);
  snapshot.ready.push_back({.id = 1, .pending = 480});
  EXPECT_EQ(Rows(ScheduleStep(snapshot).items), 120u);
  snapshot.ready[0].pending = 100;
  EXPECT_EQ(Rows(ScheduleStep(snapshot).items), kMinPrefillRows);
}

TEST(Scheduler, AShortPromptIsCutWhereThatBringsItsFirstTokenSooner) {
  SchedulerSnapshot snapshot = Snapshot(2, 0);
  snapshot.hop_ms = 0.1;
  const auto rows = [&snapshot](uint32_t pending) {
    snapshot.ready[0].pending = pending;
    return Rows(ScheduleStep(snapshot).items);
  };
  snapshot.ready.push_back({.id = 1, .pending = 16});
  EXPECT_EQ(rows(16), 16u) << "nothing is known";
  StageCost cost;  // Few rows take what reading takes, more of them are bound by arithmetic.
  cost.ms = {18.3, 20.5, 24, 31, 53, 101, 196, 392, 784, 1568, 3136, 6272};
  snapshot.costs = {cost, cost};
  EXPECT_EQ(rows(5), 5u);
  EXPECT_EQ(rows(8), 8u);
  EXPECT_EQ(rows(16), 8u);
  EXPECT_EQ(rows(64), 16u);
  EXPECT_EQ(rows(256), 16u);
  EXPECT_EQ(rows(257), 64u);
  snapshot.costs = {StageCost::Line(30, 0.1), StageCost::Line(30, 0.1)};
  EXPECT_EQ(rows(64), 64u);
  // Beside answers they share the reading of the weights.
  snapshot.costs = {cost, cost};
  snapshot.ready[0].pending = 16;
  AddDecoding(&snapshot, 2, 2);
  snapshot.decoding_attended = 20;
  EXPECT_EQ(Rows(ScheduleStep(snapshot).items), 17u);
}

TEST(Scheduler, RowsOfLogitsAreLimited) {
  SchedulerSnapshot snapshot = Snapshot(1, 0);
  snapshot.max_logits_rows = 10;
  snapshot.ready.push_back({.id = 1, .pending = 40, .wants_logits = true});
  snapshot.ready.push_back({.id = 2, .pending = 40, .wants_logits = true});
  snapshot.ready.push_back({.id = 3, .pending = 20});
  const auto items = ScheduleStep(snapshot).items;
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].tokens, 10u);
  EXPECT_EQ(items[1].id, 3u);
}

// One session whose tokens are all in flight, with guesses.
SchedulerSnapshot Ahead(uint32_t stages, uint32_t in_flight, double chance, uint32_t guesses) {
  SchedulerSnapshot snapshot = Snapshot(stages, in_flight);
  snapshot.decoding = 1;
  snapshot.decoding_attended = 100;
  snapshot.ahead = {
      .id = 7, .guesses = guesses, .drafts = 15, .draft_chance = chance, .position = 100 + guesses};
  return snapshot;
}

TEST(Scheduler, OneSessionMayHaveAStepForEachStage) {
  for (uint32_t stages = 1; stages <= 6; ++stages) {
    for (uint32_t in_flight = 0; in_flight <= 7; ++in_flight) {
      const ScheduledStep step = ScheduleStep(Ahead(stages, in_flight, 1, 3));
      const bool room = in_flight > 0 && in_flight < std::min(stages, kMostSteps);
      ASSERT_EQ(!step.empty(), room) << stages << " " << in_flight;
      if (room) {
        ASSERT_EQ(step.items.size(), 1u);
        EXPECT_TRUE(step.items[0].ahead);
        EXPECT_EQ(step.items[0].id, 7u);
        EXPECT_EQ(step.items[0].tokens, 1u);
        EXPECT_EQ(step.items[0].drafts, 15u);
      }
    }
  }
}

TEST(Scheduler, AStepAheadWantsAllInFlightToBeLikely) {
  EXPECT_FALSE(ScheduleStep(Ahead(2, 1, 0.9, 4)).empty());
  EXPECT_TRUE(ScheduleStep(Ahead(2, 1, 0.9, 15)).empty());
  EXPECT_FALSE(ScheduleStep(Ahead(2, 1, 0.5, 0)).empty());
  EXPECT_TRUE(ScheduleStep(Ahead(2, 1, 0.2, 0)).empty());
}

TEST(Scheduler, AStepAheadNeverGoesBeforeWhatOthersHave) {
  SchedulerSnapshot others = Ahead(2, 1, 1, 0);
  others.ready.push_back({.id = 1, .pending = 40});
  for (const ScheduledItem& item : ScheduleStep(others).items) {
    EXPECT_EQ(item.id, 1u);
  }
  SchedulerSnapshot two = Ahead(2, 1, 1, 0);
  two.decoding = 2;
  EXPECT_TRUE(ScheduleStep(two).empty());
}

}  // namespace
}  // namespace strata
