#include "coordinator/service/event_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"

namespace strata {
namespace {

constexpr size_t kMaxCalls = 3;

TEST(EventLoop, TasksRunInTheOrderOfPostingOnOneThread) {
  const SystemClock clock;
  EventLoop loop(
      &clock, [](TimePoint) { return std::nullopt; }, kMaxCalls);
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
  EventLoop loop(
      &clock,
      [&](TimePoint now) -> std::optional<TimePoint> {
        ++ticks;
        return now + std::chrono::milliseconds(1);
      },
      kMaxCalls);
  loop.Start();
  const TimePoint end = clock.Now() + std::chrono::seconds(10);
  while (ticks < 20 && clock.Now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(ticks, 20);
}

TEST(EventLoop, ALoopThatWasNotStartedTakesNothingAndHoldsNobodyUp) {
  const SystemClock clock;
  EventLoop loop(
      &clock, [](TimePoint) { return std::nullopt; }, kMaxCalls);
  EXPECT_EQ(loop.Call([] { return 1; }), std::nullopt);
}

TEST(EventLoop, WhatWasPostedBeforeStopRunsAndWhatComesLaterIsRefused) {
  const SystemClock clock;
  int ran = 0;
  EventLoop loop(
      &clock, [](TimePoint) { return std::nullopt; }, kMaxCalls);
  loop.Start();
  for (int i = 0; i < 10; ++i) {
    loop.Post([&] { ++ran; });
  }
  loop.Stop();
  EXPECT_EQ(ran, 10);
  EXPECT_FALSE(loop.Post([&] { ++ran; }));
  EXPECT_EQ(ReasonOf(loop.Offer([&] { ++ran; })), "STOPPING");
  EXPECT_EQ(loop.Call([] { return 1; }), std::nullopt);
  EXPECT_EQ(ran, 10);
}

TEST(EventLoop, CallsBeyondTheLimitAreRefusedUntilOthersHaveRunAndPostsAreAlwaysTaken) {
  const SystemClock clock;
  EventLoop loop(
      &clock, [](TimePoint) { return std::nullopt; }, kMaxCalls);
  loop.Start();
  std::promise<void> busy;
  std::promise<void> go_on;
  int ran = 0;
  loop.Post([&] {
    busy.set_value();
    go_on.get_future().wait();
  });
  busy.get_future().wait();
  for (size_t i = 0; i < kMaxCalls; ++i) {
    EXPECT_TRUE(loop.Offer([&] { ++ran; }).ok());
  }
  const absl::Status refused = loop.Offer([&] { ran += 100; });
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "OVERLOADED");
  EXPECT_EQ(DetailOf(refused).limit(), "waiting_calls=" + std::to_string(kMaxCalls));
  EXPECT_EQ(ReasonOf(loop.Ask([] { return 1; }).status()), "OVERLOADED");
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(loop.Post([&] { ++ran; }));
  }
  go_on.set_value();
  ASSERT_EQ(loop.Call([&] { return ran; }), 100 + static_cast<int>(kMaxCalls));
  // The Call above came after the calls that waited: there is room again.
  EXPECT_EQ(*loop.Ask([] { return 2; }), 2);
}

TEST(EventLoop, AnIdleLoopBorrowsTheCallingThreadForATaskAndTheTickAfterIt) {
  const SystemClock clock;
  std::atomic<int> ticks = 0;
  EventLoop loop(
      &clock,
      [&](TimePoint) {
        ++ticks;
        return std::nullopt;
      },
      kMaxCalls);
  EXPECT_FALSE(loop.RunOrPost([] {}));
  loop.Start();
  bool borrowed = false;
  // The loop's own thread may tick just then.
  for (int i = 0; i < 1000 && !borrowed; ++i) {
    const auto self = std::this_thread::get_id();
    const int ticks_before = ticks;
    std::atomic<bool> here = false;
    ASSERT_TRUE(loop.RunOrPost([&] { here = std::this_thread::get_id() == self; }));
    borrowed = here && ticks > ticks_before;
    loop.Call([] { return 0; });
  }
  EXPECT_TRUE(borrowed);
  loop.Stop();
  EXPECT_FALSE(loop.RunOrPost([] {}));
}

TEST(EventLoop, ABusyLoopRunsWhatIsLentToItInItsTurn) {
  const SystemClock clock;
  EventLoop loop(
      &clock, [](TimePoint) { return std::nullopt; }, kMaxCalls);
  loop.Start();
  std::promise<void> busy;
  std::promise<void> go_on;
  std::vector<int> order;
  loop.Post([&] {
    busy.set_value();
    go_on.get_future().wait();
  });
  busy.get_future().wait();
  loop.Post([&] { order.push_back(1); });
  EXPECT_TRUE(loop.RunOrPost([&] { order.push_back(2); }));
  loop.Post([&] { order.push_back(3); });
  EXPECT_TRUE(order.empty());
  go_on.set_value();
  EXPECT_EQ(loop.Call([&] { return order; }), (std::vector<int>{1, 2, 3}));
}

TEST(EventLoop, TasksFromManyThreadsNeverOverlapWhicheverThreadRunsThem) {
  const SystemClock clock;
  int ran = 0;  // Only the loop's exclusion guards it.
  int ticks = 0;
  EventLoop loop(
      &clock,
      [&](TimePoint) {
        ++ticks;
        return std::nullopt;
      },
      kMaxCalls);
  loop.Start();
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        EXPECT_TRUE((t + i) % 2 == 0 ? loop.RunOrPost([&] { ++ran; }) : loop.Post([&] { ++ran; }));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(loop.Call([&] { return ran; }), kThreads * kEach);
  loop.Stop();
  EXPECT_GT(ticks, 0);
}

TEST(EventLoop, AskHandsOnTheErrorsOfWhatItAsks) {
  const SystemClock clock;
  EventLoop loop(
      &clock, [](TimePoint) { return std::nullopt; }, kMaxCalls);
  EXPECT_EQ(ReasonOf(loop.Ask([] { return 1; }).status()), "STOPPING");
  loop.Start();
  EXPECT_TRUE(loop.Ask([] { return absl::OkStatus(); }).ok());
  EXPECT_TRUE(absl::IsNotFound(loop.Ask([] { return absl::NotFoundError("x"); })));
  EXPECT_EQ(*loop.Ask([] { return absl::StatusOr<int>(3); }), 3);
  EXPECT_TRUE(absl::IsNotFound(
      loop.Ask([] { return absl::StatusOr<int>(absl::NotFoundError("x")); }).status()));
}

}  // namespace
}  // namespace strata
