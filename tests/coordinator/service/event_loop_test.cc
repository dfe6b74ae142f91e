#include "coordinator/service/loop/event_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "tests/eventually.h"

namespace strata {
namespace {

constexpr size_t kMaxCalls = 3;

// A loop, not yet started, whose tick does nothing until a test says what.
class EventLoopTest : public ::testing::Test {
 protected:
  // Keeps the loop busy until what it returns is set.
  std::promise<void> HoldUp() {
    auto busy = std::make_shared<std::promise<void>>();
    std::promise<void> go_on;
    loop_.Post([busy, waits_for = go_on.get_future().share()] {
      busy->set_value();
      waits_for.wait();
    });
    busy->get_future().wait();
    return go_on;
  }

  const SystemClock clock_{};
  std::atomic<int> ticks_ = 0;  // Where a tick counts itself.
  EventLoop::TickFn tick_ = [](TimePoint) { return std::nullopt; };
  // Last, so that it stops before what its tick looks at is gone.
  EventLoop loop_{&clock_, [this](TimePoint now) { return tick_(now); }, kMaxCalls};
};

TEST_F(EventLoopTest, TasksRunInTheOrderOfPostingOnOneThread) {
  loop_.Start();
  std::vector<int> order;
  std::thread::id thread;
  for (int i = 0; i < 100; ++i) {
    loop_.Post([&, i] {
      order.push_back(i);
      thread = std::this_thread::get_id();
    });
  }
  ASSERT_EQ(loop_.Call([&] { return std::this_thread::get_id() == thread; }), true);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST_F(EventLoopTest, TicksWhenTheTickAskedToBeWoken) {
  tick_ = [this](TimePoint now) {
    ++ticks_;
    return now + std::chrono::milliseconds(1);
  };
  loop_.Start();
  EXPECT_TRUE(Eventually([this] { return ticks_ >= 20; }));
}

TEST_F(EventLoopTest, ALoopThatWasNotStartedTakesNothingAndHoldsNobodyUp) {
  EXPECT_EQ(loop_.Call([] { return 1; }), std::nullopt);
}

TEST_F(EventLoopTest, WhatWasPostedBeforeStopRunsAndWhatComesLaterIsRefused) {
  int ran = 0;
  loop_.Start();
  for (int i = 0; i < 10; ++i) {
    loop_.Post([&] { ++ran; });
  }
  loop_.Stop();
  EXPECT_EQ(ran, 10);
  EXPECT_FALSE(loop_.Post([&] { ++ran; }));
  EXPECT_EQ(ReasonOf(loop_.Offer([&] { ++ran; })), "STOPPING");
  EXPECT_EQ(loop_.Call([] { return 1; }), std::nullopt);
  EXPECT_EQ(ran, 10);
}

TEST_F(EventLoopTest, CallsBeyondTheLimitAreRefusedUntilOthersHaveRunAndPostsAreAlwaysTaken) {
  loop_.Start();
  int ran = 0;
  std::promise<void> go_on = HoldUp();
  for (size_t i = 0; i < kMaxCalls; ++i) {
    EXPECT_TRUE(loop_.Offer([&] { ++ran; }).ok());
  }
  const absl::Status refused = loop_.Offer([&] { ran += 100; });
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "OVERLOADED");
  EXPECT_EQ(DetailOf(refused).limit(), "waiting_calls=" + std::to_string(kMaxCalls));
  EXPECT_EQ(ReasonOf(loop_.Ask([] { return 1; }).status()), "OVERLOADED");
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(loop_.Post([&] { ++ran; }));
  }
  go_on.set_value();
  ASSERT_EQ(loop_.Call([&] { return ran; }), 100 + static_cast<int>(kMaxCalls));
  // The Call above came after the calls that waited: there is room again.
  EXPECT_EQ(*loop_.Ask([] { return 2; }), 2);
}

TEST_F(EventLoopTest, AnIdleLoopBorrowsTheCallingThreadForATaskAndTheTickAfterIt) {
  tick_ = [this](TimePoint) {
    ++ticks_;
    return std::nullopt;
  };
  EXPECT_FALSE(loop_.RunOrPost([] {}));
  loop_.Start();
  bool borrowed = false;
  // The loop's own thread may tick just then.
  for (int i = 0; i < 1000 && !borrowed; ++i) {
    const auto self = std::this_thread::get_id();
    const int ticks_before = ticks_;
    std::atomic<bool> here = false;
    ASSERT_TRUE(loop_.RunOrPost([&] { here = std::this_thread::get_id() == self; }));
    borrowed = here && ticks_ > ticks_before;
    loop_.Call([] { return 0; });
  }
  EXPECT_TRUE(borrowed);
  loop_.Stop();
  EXPECT_FALSE(loop_.RunOrPost([] {}));
}

TEST_F(EventLoopTest, ABusyLoopRunsWhatIsLentToItInItsTurn) {
  loop_.Start();
  std::vector<int> order;
  std::promise<void> go_on = HoldUp();
  loop_.Post([&] { order.push_back(1); });
  EXPECT_TRUE(loop_.RunOrPost([&] { order.push_back(2); }));
  loop_.Post([&] { order.push_back(3); });
  EXPECT_TRUE(order.empty());
  go_on.set_value();
  EXPECT_EQ(loop_.Call([&] { return order; }), (std::vector<int>{1, 2, 3}));
}

TEST_F(EventLoopTest, TasksFromManyThreadsNeverOverlapWhicheverThreadRunsThem) {
  int ran = 0;  // Only the loop's exclusion guards these.
  int ticks = 0;
  tick_ = [&](TimePoint) {
    ++ticks;
    return std::nullopt;
  };
  loop_.Start();
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        EXPECT_TRUE((t + i) % 2 == 0 ? loop_.RunOrPost([&] { ++ran; })
                                     : loop_.Post([&] { ++ran; }));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(loop_.Call([&] { return ran; }), kThreads * kEach);
  loop_.Stop();
  EXPECT_GT(ticks, 0);
}

TEST_F(EventLoopTest, AskHandsOnTheErrorsOfWhatItAsks) {
  EXPECT_EQ(ReasonOf(loop_.Ask([] { return 1; }).status()), "STOPPING");
  loop_.Start();
  EXPECT_TRUE(loop_.Ask([] { return absl::OkStatus(); }).ok());
  EXPECT_TRUE(absl::IsNotFound(loop_.Ask([] { return absl::NotFoundError("x"); })));
  EXPECT_EQ(*loop_.Ask([] { return absl::StatusOr<int>(3); }), 3);
  EXPECT_TRUE(absl::IsNotFound(
      loop_.Ask([] { return absl::StatusOr<int>(absl::NotFoundError("x")); }).status()));
}

}  // namespace
}  // namespace strata
