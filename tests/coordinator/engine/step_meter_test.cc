#include "coordinator/engine/step_meter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "common/limits.h"
#include "tests/coordinator/engine/sim_cluster.h"

namespace strata {
namespace {

using Said = google::protobuf::RepeatedPtrField<v1::StageKv>;

void Say(Said* said, double compute_ms, double wait_ms = 0, uint64_t received_bytes = 0) {
  v1::StageKv* stage = said->Add();
  stage->set_stage(static_cast<uint32_t>(said->size() - 1));
  stage->set_compute_ms(compute_ms);
  stage->set_wait_ms(wait_ms);
  stage->set_received_bytes(received_bytes);
}

TimePoint At(int ms) { return TimePoint() + milliseconds(1000 + ms); }

TEST(StepMeter, AStepsTimeIsComputingWaitingAndHops) {
  StepMeter meter(2);
  meter.Begin(At(0));
  Said said;
  Say(&said, 4, 1, 100);
  Say(&said, 3, 0, 5000);
  const StepTimes times = meter.Commit(6, true, said, 70, milliseconds(10), At(10));
  EXPECT_EQ(times.computed, milliseconds(7));
  EXPECT_EQ(times.waited, milliseconds(1));
  EXPECT_EQ(times.hops, milliseconds(2));
  const PipelineCounters& counters = meter.counters();
  EXPECT_EQ(counters.busy, milliseconds(10));
  EXPECT_EQ(counters.hops.total, 1u);
  EXPECT_NEAR(counters.hops.sum_s, 0.002, 1e-12);
  const StageCounters& first = counters.stages[0];
  EXPECT_EQ(first.steps, 1u);
  EXPECT_EQ(first.rows, 6u);
  EXPECT_EQ(first.computed, milliseconds(4));
  EXPECT_EQ(first.waited, milliseconds(1));
  EXPECT_EQ(first.bubble, milliseconds(6));
  EXPECT_EQ(first.received_bytes, 100u);
  EXPECT_EQ(first.sent_bytes, 5000u);  // What the next stage received.
  EXPECT_EQ(counters.stages[1].received_bytes, 5000u);
  EXPECT_EQ(counters.stages[1].sent_bytes, 70u);
  EXPECT_EQ(counters.stages[1].bubble, milliseconds(7));
}

TEST(StepMeter, TimeWithoutStepsUnderWayIsNoBubble) {
  StepMeter meter(1);
  Said said;
  Say(&said, 10);
  meter.Begin(At(0));
  (void)meter.Commit(1, true, said, 0, milliseconds(10), At(10));
  meter.Begin(At(500));
  (void)meter.Commit(1, true, said, 0, milliseconds(10), At(510));
  EXPECT_EQ(meter.counters().busy, milliseconds(20));
  EXPECT_EQ(meter.counters().stages[0].computed, milliseconds(20));
  EXPECT_EQ(meter.counters().stages[0].bubble, milliseconds(0));
}

TEST(StepMeter, AStageThatWasAheadOfTheResultsMakesNoCounterFall) {
  StepMeter meter(2);
  meter.Begin(At(0));
  // Two steps, pipelined: the first stage computes 10 ms of each without a pause, the second 2.
  Said said;
  Say(&said, 10);
  Say(&said, 2);
  nanoseconds before{0};
  for (int i = 1; i <= 5; ++i) {
    (void)meter.Commit(1, true, said, 0, milliseconds(12), At(10 * i + 2));
    EXPECT_GE(meter.counters().stages[0].bubble, before);
    before = meter.counters().stages[0].bubble;
  }
  EXPECT_EQ(meter.counters().stages[0].bubble, milliseconds(2));
  EXPECT_EQ(meter.counters().stages[1].bubble, milliseconds(42));
}

TEST(StepMeter, CommandsAloneAreNoStepOfTheHistogram) {
  StepMeter meter(1);
  meter.Begin(At(0));
  Said said;
  Say(&said, 1);
  (void)meter.Commit(0, false, said, 0, milliseconds(2), At(2));
  EXPECT_EQ(meter.counters().stages[0].steps, 1u);
  EXPECT_EQ(meter.counters().stages[0].step_time.total, 0u);
}

TEST(StepMeter, WhatAStageSaysIsWithinTheStepsTime) {
  for (const double ms : {-1.0, 1e300, std::numeric_limits<double>::infinity(), std::nan("")}) {
    StepMeter meter(1);
    meter.Begin(At(0));
    Said said;
    Say(&said, ms, ms, std::numeric_limits<uint64_t>::max());
    (void)meter.Commit(1, true, said, 0, milliseconds(3), At(3));
    const StageCounters& stage = meter.counters().stages[0];
    EXPECT_GE(stage.computed, nanoseconds(0)) << ms;
    EXPECT_LE(stage.computed, milliseconds(3)) << ms;
    EXPECT_LE(stage.waited, milliseconds(3)) << ms;
    EXPECT_LE(stage.received_bytes, kMaxFrameBytes);
  }
}

TEST(StepMeter, ARequestIsToldWhereTheTimeOfItsStepsWent) {
  SimCluster cluster(MakeConfig(2));
  cluster.Start();
  cluster.Settle();
  for (uint32_t stage : {0u, 1u}) {
    cluster.fake(stage).fixed_ms = 2;
    cluster.fake(stage).row_ms = 0;
  }
  const auto sink = cluster.Submit(MakeRequest("r1", 4, 3));
  while (!sink->done.has_value()) {
    ASSERT_TRUE(cluster.Deliver(0) && cluster.Deliver(1));
    cluster.Advance(milliseconds(5));
    ASSERT_TRUE(cluster.Deliver(2));
  }
  EXPECT_EQ(sink->done->steps, 3u);  // The prompt, and a token each.
  EXPECT_EQ(sink->done->times.computed, milliseconds(12));
  EXPECT_EQ(sink->done->times.hops, milliseconds(3));
  EXPECT_EQ(sink->done->preemptions, 0u);
  const EngineSnapshot snapshot = cluster.Snapshot();
  ASSERT_EQ(snapshot.nodes.size(), 2u);
  EXPECT_EQ(snapshot.pipeline.busy, milliseconds(15));
  EXPECT_EQ(snapshot.pipeline.stages[1].bubble, milliseconds(9));
}

}  // namespace
}  // namespace strata
