#include "coordinator/service/calls/watched_tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <vector>

#include "tests/eventually.h"

namespace strata {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::hours kNever{10};

TEST(WatchedTasks, WhatATaskGivesAndSaysComesBack) {
  WatchedTasks tasks;
  std::vector<uint64_t> said;
  const absl::Status given = tasks.Run(
      kNever,
      [](const WatchedTasks::Report& report) {
        EXPECT_TRUE(report(3, 10));
        return absl::AbortedError("so it ends");
      },
      [&](uint64_t done, uint64_t total) { said.push_back(10 * total + done); },
      absl::UnavailableError("stalled"));
  EXPECT_EQ(given.message(), "so it ends");
  // It may have ended before anybody looked.
  EXPECT_TRUE(said.empty() || said == std::vector<uint64_t>{103});
}

TEST(WatchedTasks, OneThatHangsEndsForWhoWaitsAndIsToldSoOnceItGoesOn) {
  std::promise<void> disk;
  std::atomic<bool> wanted = true;
  std::atomic<bool> ended = false;
  {
    WatchedTasks tasks;
    const auto hangs = [&, wait = disk.get_future().share()](const WatchedTasks::Report& report) {
      EXPECT_TRUE(report(1, 2));
      wait.wait();
      wanted = report(2, 2);
      ended = true;
      return absl::OkStatus();
    };
    const absl::Status stalled = tasks.Run(
        milliseconds(20), hangs, [](uint64_t, uint64_t) {}, absl::UnavailableError("x"));
    EXPECT_EQ(stalled.message(), "x");
    EXPECT_FALSE(ended);
    // Others are served meanwhile.
    EXPECT_TRUE(tasks
                    .Run(
                        kNever, [](const WatchedTasks::Report&) { return absl::OkStatus(); },
                        [](uint64_t, uint64_t) {}, absl::UnavailableError("x"))
                    .ok());
    disk.set_value();
  }
  EXPECT_TRUE(ended) << "its end is waited for with the tasks'";
  EXPECT_FALSE(wanted);
}

}  // namespace
}  // namespace strata
