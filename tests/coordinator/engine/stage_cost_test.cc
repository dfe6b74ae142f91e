#include "coordinator/engine/stage_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace strata {
namespace {

// Reading the weights takes 18 ms; the arithmetic beside it hides some of it.
double TrueMs(const StepWork& work) {
  return std::hypot(18.0, 3.0 * work.rows) + 0.0014 * work.attended;
}

TEST(StageCost, IsALineBetweenItsKnots) {
  const StageCost cost = StageCost::Line(10, 0.5, 0.001);
  for (const uint32_t rows : {1u, 2u, 3u, 7u, 100u, 2048u, 3000u, 100000u}) {
    EXPECT_NEAR(cost.Ms({rows, 50}), 10 + 0.5 * rows + 0.05, 1e-6) << rows;
  }
  EXPECT_EQ(cost.Ms({}), 0);
}

TEST(StageCost, WhatItMayWellBeIsLessByADeviation) {
  StageCost cost = StageCost::Line(10, 1, 0.001);
  EXPECT_NEAR(cost.HopefulMs({4, 1000}), cost.Ms({4, 1000}), 1e-9) << "no doubt";
  cost.doubt.own.fill(0.04);
  cost.doubt.with_next.fill(0.04);
  cost.doubt.with_attended.fill(0.04);
  cost.doubt.attended = 0.04;
  for (const uint32_t rows : {1u, 4u, 5u, 100u, 2000u}) {
    EXPECT_NEAR(cost.HopefulMs({rows, 1000}) / cost.Ms({rows, 1000}), std::exp(-0.2), 1e-9) << rows;
  }
  cost.doubt.with_attended.fill(0);
  EXPECT_GT(cost.HopefulMs({4, 14000}) / cost.Ms({4, 14000}), std::exp(-0.2)) << "they even out";
  EXPECT_EQ(cost.HopefulMs({}), 0);
}

TEST(StageFit, TellsPositionsThatAreAttendedFromRows) {
  StageFit fit(0);
  uint32_t position = 0;
  for (int i = 0; i < 500; ++i) {
    const uint32_t rows = 1 + static_cast<uint32_t>(i * 7 % 60);
    const StepWork work{rows, Attended(position, rows)};
    fit.Observe(work, 20 + 0.5 * rows + 0.001 * work.attended);
    position = (position + rows) % 2000;
  }
  EXPECT_NEAR(fit.Cost().attended_ms, 0.001, 0.0001);
  EXPECT_NEAR(fit.Cost().Ms({30}), 35, 1);
}

// What decides about the rows beside answers: few rows, after steps of very many.
TEST(StageFit, KnowsFewRowsAndManyAtTheSameTime) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(1, 0.03);
  StageFit fit(18);
  auto observe = [&](uint32_t rows, uint32_t position) {
    const StepWork work{rows, Attended(position, rows)};
    fit.Observe(work, TrueMs(work) * noise(random));
  };
  for (int i = 0; i < 12; ++i) {
    observe(128, 128 * i);
  }
  for (int i = 0; i < 300; ++i) {
    observe(4, 100 + i);
  }
  for (int i = 0; i < 50; ++i) {
    observe(4 + i % 8, 400 + 10 * i);
  }
  for (const uint32_t rows : {4u, 7u, 10u, 128u}) {
    EXPECT_NEAR(fit.Cost().Ms({rows}) / TrueMs({rows}), 1, 0.1) << rows;
  }
}

TEST(StageFit, StepsThatAreAllAlikeMoveTheOthersWithThem) {
  StageFit fit(10);
  for (int i = 0; i < 20; ++i) {
    for (const uint32_t rows : {4u, 100u}) {
      fit.Observe({rows}, 40 + 0.5 * rows);
    }
  }
  for (int i = 0; i < 500; ++i) {
    fit.Observe({4}, 2 * (40 + 0.5 * 4));  // The machine is half as fast now.
  }
  EXPECT_NEAR(fit.Cost().Ms({4}), 84, 1);
  EXPECT_GT(fit.Cost().Ms({100}), 1.2 * 90) << "though no such step was seen since";
}

TEST(StageFit, OneStepThatTookFarTooLongSaysLittle) {
  StageFit fit(10);
  for (int i = 0; i < 50; ++i) {
    fit.Observe({8}, 30);
  }
  fit.Observe({8}, 3000);
  EXPECT_LT(fit.Cost().Ms({8}), 35);
  for (int i = 0; i < 100; ++i) {
    fit.Observe({8}, 3000);
  }
  EXPECT_NEAR(fit.Cost().Ms({8}), 3000, 300) << "many of them do";
}

// Kernels take rows by blocks: of 9 on another one is used.
TEST(StageFit, ALeapIsNotASlope) {
  StageFit fit(0);
  auto observe = [&fit](uint32_t rows, double ms) { fit.Observe({rows}, ms); };
  for (int i = 0; i < 200; ++i) {
    observe(128, 225);
    observe(8, 22);
    observe(9, 30);
    observe(3, 22);
  }
  EXPECT_NEAR(fit.Cost().Ms({8}), 22, 2);
  EXPECT_LT(fit.Cost().Ms({16}), 55) << "86 by the slope; 36 of that machine";
  EXPECT_GT(fit.Cost().Ms({16}), 30);
  EXPECT_NEAR(fit.Cost().Ms({128}), 225, 20);
}

TEST(StageFit, MoreRowsNeverTakeLess) {
  std::mt19937 random(7);
  StageFit fit(1);
  for (int i = 0; i < 2000; ++i) {
    fit.Observe({1 + static_cast<uint32_t>(random() % 600), static_cast<double>(random() % 10000)},
                static_cast<double>(random() % 1000) / 10);
    const StageCost cost = fit.Cost();
    double before = 0;
    for (uint32_t rows = 1; rows < 5000; rows += 1 + rows / 3) {
      ASSERT_GE(cost.Ms({rows}), before);
      before = cost.Ms({rows});
    }
    ASSERT_TRUE(std::isfinite(before));
  }
}

}  // namespace
}  // namespace strata
