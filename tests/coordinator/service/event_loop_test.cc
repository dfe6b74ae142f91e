#include "coordinator/service/event_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace strata {
namespace {

TEST(EventLoop, TasksRunInTheOrderOfPostingOnOneThread) {
  const SystemClock clock;
  EventLoop loop(&clock, [](TimePoint) { return std::nullopt; });
  loop.Start();
  std::vector<int> order;
  std::thread::id thread;
  for (int i = 0; i < 100; ++i) {
    loop.Post([&, i] {
      order.push_back(i);
      thread = std::this_thread::get_id();
    });
  }
  ASSERT_EQ(loop.Call([&] { return std::this_thread::get_id() == thread; }), true);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(EventLoop, TicksWhenTheTickAskedToBeWoken) {
  const SystemClock clock;
  std::atomic<int> ticks = 0;
  EventLoop loop(&clock, [&](TimePoint now) -> std::optional<TimePoint> {
    ++ticks;
    return now + std::chrono::milliseconds(1);
  });
  loop.Start();
  const TimePoint end = clock.Now() + std::chrono::seconds(10);
  while (ticks < 20 && clock.Now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(ticks, 20);
}

TEST(EventLoop, ALoopThatWasNotStartedTakesNothingAndHoldsNobodyUp) {
  const SystemClock clock;
  EventLoop loop(&clock, [](TimePoint) { return std::nullopt; });
  EXPECT_EQ(loop.Call([] { return 1; }), std::nullopt);
}

TEST(EventLoop, WhatWasPostedBeforeStopRunsAndWhatComesLaterIsRefused) {
  const SystemClock clock;
  int ran = 0;
  EventLoop loop(&clock, [](TimePoint) { return std::nullopt; });
  loop.Start();
  for (int i = 0; i < 10; ++i) {
    loop.Post([&] { ++ran; });
  }
  loop.Stop();
  EXPECT_EQ(ran, 10);
  EXPECT_FALSE(loop.Post([&] { ++ran; }));
  EXPECT_EQ(loop.Call([] { return 1; }), std::nullopt);
  EXPECT_EQ(ran, 10);
}

}  // namespace
}  // namespace strata
