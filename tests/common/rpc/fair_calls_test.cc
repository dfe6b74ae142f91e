#include "common/rpc/fair_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>

#include "common/status.h"
#include "tests/eventually.h"

namespace strata {
namespace {

// The order in which a queue gives what was pushed, by the keys' names.
std::string Drain(FairQueue* queue, std::string* order) {
  while (queue->size() > 0) queue->Pop()();
  return *order;
}

TEST(FairQueue, WhoSendsMuchWaitsForItselfAlone) {
  FairQueue queue;
  std::string order;
  const auto push = [&](const std::string& key, uint64_t bytes) {
    queue.Push(key, bytes, [&order, key] { order += key; });
  };
  for (int i = 0; i < 6; ++i) push("a", 4'000'000);
  push("b", 4'000'000);
  push("c", 100);
  push("c", 100);
  push("b", 4'000'000);
  EXPECT_EQ(Drain(&queue, &order), "abccabaaaa");
}

TEST(FairQueue, WhoComesAnewIsServedLikeTheOthersFromThenOn) {
  FairQueue queue;
  std::string order;
  const auto push = [&](const std::string& key, uint64_t bytes) {
    queue.Push(key, bytes, [&order, key] { order += key; });
  };
  // Its past counts neither for nor against it.
  for (int i = 0; i < 4; ++i) push("a", 1000);
  for (int i = 0; i < 4; ++i) queue.Pop()();
  for (int i = 0; i < 3; ++i) push("a", 1000);
  for (int i = 0; i < 3; ++i) push("b", 1000);
  order.clear();
  EXPECT_EQ(Drain(&queue, &order).substr(0, 2), "ba");
  EXPECT_EQ(order.size(), 6u);
  EXPECT_EQ(order.find("bb"), std::string::npos);
}

TEST(FairQueue, OfOneKeyTheOldestIsNextWhateverItsSize) {
  FairQueue queue;
  std::string order;
  for (const int i : {3, 1, 2}) {
    queue.Push("a", static_cast<uint64_t>(1000 * i), [&order, i] { order += std::to_string(i); });
  }
  EXPECT_EQ(Drain(&queue, &order), "312");
}

TEST(FairCalls, SmallOnesRunWhileLargeOnesHoldAllTheirThreads) {
  std::promise<void> open;
  const std::shared_future<void> opened(open.get_future());
  std::atomic<int> large = 0;
  std::atomic<int> small = 0;
  FairCalls calls({.threads = 2, .large_threads = 1, .large_bytes = 100, .waiting = 100});
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(calls
                    .Run(i % 2 == 0 ? "a" : "b", 100,
                         [&] {
                           ++large;
                           opened.wait();
                         })
                    .ok());
  }
  EXPECT_TRUE(Eventually([&] { return large == 1; }));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(calls.Run("c", 99, [&] { ++small; }).ok());
  }
  EXPECT_TRUE(Eventually([&] { return small == 20; }));
  EXPECT_EQ(large, 1) << "one at a time";
  open.set_value();
  calls.Stop();
  EXPECT_EQ(large, 60);
}

TEST(FairCalls, OneMoreThanMayRunAndWaitIsRefusedAndAllAfterTheEnd) {
  std::promise<void> open;
  const std::shared_future<void> opened(open.get_future());
  FairCalls calls(
      {.threads = 1, .large_threads = 1, .waiting = 1, .name = "texts", .hint = "wait"});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(calls.Run("a", 1, [&] { opened.wait(); }).ok());
  }
  const absl::Status refused = calls.Run("b", 1, [] {});
  EXPECT_EQ(ReasonOf(refused), "TOO_MANY_CALLS");
  EXPECT_EQ(DetailOf(refused).limit(), "texts=3");
  EXPECT_EQ(DetailOf(refused).hint(), "wait");
  open.set_value();
  calls.Stop();
  EXPECT_EQ(ReasonOf(calls.Run("b", 1, [] {})), "STOPPING");
}

TEST(FairCalls, TextsOfMoreBytesThanMayWaitAreRefusedAndAKeyLeavesOthersTheirShare) {
  std::promise<void> open;
  const std::shared_future<void> opened(open.get_future());
  FairCalls calls({.threads = 1,
                   .large_threads = 1,
                   .large_bytes = 10,
                   .waiting = 100,
                   .most_bytes = 1000,
                   .bytes_name = "texts",
                   .bytes_hint = "less"});
  const auto wait = [&] { opened.wait(); };
  ASSERT_TRUE(calls.Run("a", 300, wait).ok());
  ASSERT_TRUE(calls.Run("a", 200, wait).ok());
  const absl::Status refused = calls.Run("a", 1, wait);
  EXPECT_EQ(ReasonOf(refused), "TOO_MANY_CALLS");
  EXPECT_EQ(DetailOf(refused).limit(), "texts=1000");
  EXPECT_EQ(DetailOf(refused).hint(), "less");
  EXPECT_TRUE(calls.Run("a", 0, wait).ok()) << "what reads no text has its place";
  ASSERT_TRUE(calls.Run("b", 500, wait).ok());
  EXPECT_EQ(ReasonOf(calls.Run("c", 1, wait)), "TOO_MANY_CALLS");
  open.set_value();
  // What has run holds nothing.
  EXPECT_TRUE(Eventually([&] { return calls.Run("a", 1000, [] {}).ok(); }));
  calls.Stop();
}

}  // namespace
}  // namespace strata
