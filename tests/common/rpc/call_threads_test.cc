#include "common/rpc/call_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "tests/eventually.h"

namespace strata {
namespace {

using std::chrono::milliseconds;

// Holds tasks until it is opened, and counts those that came.
class Gate {
 public:
  std::function<void()> Task() {
    return [this, opened = opened_] {
      ++came_;
      opened.wait();
    };
  }
  void Open() { open_.set_value(); }
  bool Came(int count) {
    return Eventually([&] { return came_ >= count; }) && came_ == count;
  }

 private:
  std::promise<void> open_;
  const std::shared_future<void> opened_{open_.get_future()};
  std::atomic<int> came_ = 0;
};

TEST(CallThreads, CallsRunAtOnceAndOneMoreThanMayRunAndWaitIsRefusedWithWhatToDo) {
  Gate gate;
  std::atomic<int> later = 0;
  CallThreads threads({.threads = 3, .waiting = 2, .name = "uploads", .hint = "be patient"});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(threads.Run(gate.Task()).ok());
  }
  EXPECT_TRUE(gate.Came(3));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(threads.Run([&] { ++later; }).ok());
  }
  const absl::Status refused = threads.Run([&] { later += 100; });
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "TOO_MANY_CALLS");
  EXPECT_EQ(DetailOf(refused).limit(), "uploads=5");
  EXPECT_EQ(DetailOf(refused).hint(), "be patient");
  EXPECT_EQ(later, 0);
  gate.Open();
  // There is room again.
  std::promise<void> ran;
  while (!threads.Run([&] { ran.set_value(); }).ok()) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  ran.get_future().wait();
}

TEST(CallThreads, CallsThatWaitBeginInTheirOrder) {
  Gate gate;
  std::vector<int> order;
  {
    CallThreads threads({.threads = 1, .waiting = 100});
    ASSERT_TRUE(threads.Run(gate.Task()).ok());
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(threads.Run([&, i] { order.push_back(i); }).ok());
    }
    gate.Open();
  }
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(CallThreads, EndingWaitsForAllThatWasTaken) {
  std::atomic<int> ran = 0;
  {
    CallThreads threads({.threads = 2, .waiting = 8});
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(threads
                      .Run([&] {
                        std::this_thread::sleep_for(milliseconds(10));
                        ++ran;
                      })
                      .ok());
    }
  }
  EXPECT_EQ(ran, 10);
}

TEST(CallThreads, AThreadServesManyCalls) {
  CallThreads threads({.threads = 8});
  Mutex mutex;
  std::set<std::thread::id> seen;
  for (int i = 0; i < 50; ++i) {
    std::promise<void> ran;
    ASSERT_TRUE(threads
                    .Run([&] {
                      MutexLock lock(&mutex);
                      seen.insert(std::this_thread::get_id());
                      ran.set_value();
                    })
                    .ok());
    ran.get_future().wait();
    ASSERT_TRUE(Eventually([&] { return threads.idle() == 1; }));
  }
  EXPECT_EQ(seen.size(), 1u);
}

TEST(CallThreads, ThreadsEndWhenTheyAreNotNeededAndComeBackWhenTheyAre) {
  CallThreads threads({.threads = 6, .longest_idle = milliseconds(1)});
  for (int round = 0; round < 30; ++round) {
    Gate gate;
    std::atomic<int> ended = 0;
    for (int i = 0; i < 6; ++i) {
      // As long as one of the round before has not said that it ended.
      while (!threads
                  .Run([&, task = gate.Task()] {
                    task();
                    ++ended;
                  })
                  .ok()) {
        std::this_thread::yield();
      }
    }
    ASSERT_TRUE(gate.Came(6)) << "a call waits for a thread in round " << round;
    gate.Open();
    while (ended < 6) {
      std::this_thread::yield();
    }
    std::this_thread::sleep_for(milliseconds(round % 7));
  }
}

}  // namespace
}  // namespace strata
