#include "worker/backend/cpu/threads/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/platform/platform.h"
#include "tests/eventually.h"
#include "worker/backend/cpu/threads/float_environment.h"

namespace strata::cpu {
namespace {

TEST(ThreadPoolTest, EveryThreadRunsOnceACall) {
  for (const uint32_t threads : {1u, 2u, 5u, 16u}) {
    for (const uint32_t cores : {0u, 64u}) {  // Parking at once, and spinning.
      ThreadPool pool(threads, cores);
      std::vector<int> calls(threads, 0);
      for (int i = 0; i < 300; ++i) {
        pool.Run([&](uint32_t thread) { ++calls[thread]; });
        if (i % 100 == 99) {
          EXPECT_TRUE(Eventually([&] { return pool.parked() == threads - 1; }));
        }
      }
      EXPECT_EQ(calls, std::vector<int>(threads, 300));
    }
  }
}

TEST(ThreadPoolTest, SplitCoversEverythingOnce) {
  ThreadPool pool(5, 2);
  for (const size_t count : {0u, 1u, 2u, 4u, 5u, 6u, 101u}) {
    std::vector<std::atomic<int>> seen(count);
    pool.Split(count, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        ++seen[i];
      }
    });
    for (const auto& n : seen) {
      EXPECT_EQ(n.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, SplitCoversEverythingOnceHoweverUnevenTheWork) {
  ThreadPool pool(4, 4);
  for (int round = 0; round < 300; ++round) {
    constexpr size_t kCount = 203;
    std::vector<std::atomic<int>> seen(kCount);
    pool.Split(kCount, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        for (std::atomic<size_t> spin = 0; spin < (i * 7919 + round) % 97; ++spin) {
        }
        ++seen[i];
      }
    });
    for (const auto& n : seen) {
      ASSERT_EQ(n.load(), 1);
    }
  }
}

// Whoever has the first piece waits until the others have done all that is not in it.
TEST(ThreadPoolTest, WhatASlowThreadDoesNotBeginOthersDo) {
  for (const uint32_t threads : {2u, 3u, 8u}) {
    ThreadPool pool(threads, 0);
    constexpr size_t kCount = 800;
    std::atomic<size_t> done = 0;
    pool.Split(kCount, [&](size_t begin, size_t end) {
      while (begin == 0 && done < kCount - end) {
        std::this_thread::yield();
      }
      done += end - begin;
    });
    EXPECT_EQ(done, kCount);
  }
}

TEST(ThreadPoolTest, SmallWorkStaysOnTheCaller) {
  ThreadPool pool(4, 4);
  pool.Split(
      3, [&](size_t begin, size_t end) { EXPECT_EQ(end - begin, 3u); }, 3);
}

// What is to be done before and after one's pieces is done by every thread, whoever got them.
TEST(ThreadPoolTest, ShareCallsEachThreadOnceAndCoversEverythingOnce) {
  for (const uint32_t threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads, 2);
    for (const size_t count : {0u, 1u, 2u, 7u, 101u}) {
      std::vector<int> calls(threads, 0);
      std::vector<std::atomic<int>> seen(count);
      pool.Share(count, [&](uint32_t thread, ThreadPool::Pieces pieces) {
        ++calls[thread];
        for (auto piece = pieces.Next(); !piece.empty(); piece = pieces.Next()) {
          for (size_t i = piece.begin; i < piece.end; ++i) {
            ++seen[i];
          }
        }
        EXPECT_TRUE(pieces.Next().empty());
      });
      std::vector<int> expected(threads, count > 1 ? 1 : 0);
      expected[0] = count > 0 ? 1 : 0;  // One thing is the caller's.
      EXPECT_EQ(calls, expected) << count;
      for (const auto& n : seen) {
        EXPECT_EQ(n.load(), 1);
      }
    }
  }
}

TEST(ThreadPoolTest, CallersTakeTurns) {
  ThreadPool pool(3, 3);
  int counter = 0;  // Unguarded: only the pool keeps the callers apart.
  const auto caller = [&] {
    for (int i = 0; i < 500; ++i) {
      pool.Run([&](uint32_t thread) {
        if (thread == 0) {
          ++counter;
        }
      });
    }
  };
  std::thread one(caller);
  std::thread two(caller);
  one.join();
  two.join();
  EXPECT_EQ(counter, 1000);
}

// Whoever went on spinning would take all of the time, or its share of a busy machine.
TEST(ThreadPoolTest, WhoeverWaitsLongParks) {
  ThreadPool pool(4, 64);  // Cores enough that they spin first.
  pool.Run([](uint32_t) {});
  EXPECT_TRUE(Eventually([&] { return pool.parked() == 3; })) << "between calls";
  std::promise<void> begun;
  std::promise<void> go_on;
  std::thread caller([&, gate = go_on.get_future().share()] {
    pool.Run([&](uint32_t thread) {
      if (thread == 1) {
        begun.set_value();
        gate.wait();
      }
    });
  });
  begun.get_future().wait();
  // The caller, and those that are done.
  EXPECT_TRUE(Eventually([&] { return pool.parked() == 3; })) << "for a slow thread";
  go_on.set_value();
  caller.join();
}

TEST(ThreadPoolTest, ComputesRoundingToNearestWhateverTheCallerHas) {
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  ThreadPool pool(3, 3);  // Its threads begin with the caller's environment.
  volatile float one = 1.0f;
  std::vector<float> sums(3);
  pool.Run([&](uint32_t thread) { sums[thread] = one + 0x1p-30f; });
  const float outside = one + 0x1p-30f;
  std::fesetround(FE_TONEAREST);
  EXPECT_GT(outside, 1.0f);  // The caller has back what it had.
  EXPECT_EQ(sums, std::vector<float>(3, 1.0f));
}

TEST(ThreadPoolTest, PinsItsThreadsAndLeavesTheCallerAlone) {
  const Topology before = UsableTopology();
  const uint32_t core = before.cores.empty() ? 0 : before.cores.back().number;
  ThreadPool pool(3, 3);
  const bool pinned = pool.Pin(std::vector<uint32_t>{core, core, core});
  EXPECT_EQ(pinned, !before.cores.empty());
  std::vector<Topology> seen(3);
  pool.Run([&](uint32_t thread) { seen[thread] = UsableTopology(); });
  EXPECT_EQ(seen[0].cores.size(), before.cores.size());
  for (size_t i = 1; pinned && i < seen.size(); ++i) {
    ASSERT_EQ(seen[i].cores.size(), 1u);
    EXPECT_EQ(seen[i].cores[0].number, core);
  }
}

#if defined(__linux__)
// Of the calling thread: its name and how far it gives way.
std::pair<std::string, int> NameAndNiceness() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return {name, getpriority(PRIO_PROCESS, 0)};
}

TEST(ThreadPoolTest, ThreadsThatLoadGiveWayAndAllAreNamed) {
  if (UsableTopology().cores.empty()) {
    GTEST_SKIP() << "this platform library tells threads apart by nothing";
  }
  const auto caller = NameAndNiceness();
  for (const ThreadUse use : {ThreadUse::kCompute, ThreadUse::kLoad}) {
    const bool loads = use == ThreadUse::kLoad;
    const std::pair<std::string, int> expected = {
        loads ? "strata-load" : "strata-compute",
        loads ? std::min(caller.second + 5, 19) : caller.second};
    ThreadPool pool(3, 3, use);
    std::vector<std::pair<std::string, int>> seen(3);
    pool.Run([&](uint32_t thread) { seen[thread] = NameAndNiceness(); });
    EXPECT_EQ(seen, (std::vector<std::pair<std::string, int>>{caller, expected, expected}));
  }
}
#endif

TEST(ThreadPoolTest, CoresThatDoNotExistAreNotPinnedTo) {
  ThreadPool pool(2, 2);
  EXPECT_FALSE(pool.Pin(std::vector<uint32_t>{0, 1u << 20}));
}

#if defined(__x86_64__)
TEST(ThreadPoolTest, KeepsSubnormalsWhateverTheCallerHas) {
  const uint32_t before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // FTZ and DAZ.
  std::vector<float> halves(2);
  volatile float tiny = 0x1p-126f;
  {
    ThreadPool pool(2, 2);
    pool.Run([&](uint32_t thread) { halves[thread] = tiny * 0.5f; });
  }
  const uint32_t after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after & 0x8040, 0x8040u);
  EXPECT_EQ(halves, std::vector<float>(2, 0x1p-127f));
}
#endif

}  // namespace
}  // namespace strata::cpu
