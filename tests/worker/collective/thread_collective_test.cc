#include "worker/collective/thread_collective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "common/status.h"
#include "tests/worker/collective/on_each_rank.h"
#include "tests/worker/collective/turned_clock.h"

namespace strata {
namespace {

class ThreadCollectiveTest : public ::testing::Test {
 protected:
  void Make(uint32_t ranks, bool spins = false) {
    ends_ = MakeThreadCollectives(
        ranks, {.timeout = milliseconds(1000), .clock = &clock_, .spins = spins});
  }

  // body(end) of each rank on a thread of its own; what each returned.
  std::vector<absl::Status> OnEach(const std::function<absl::Status(Collective*)>& body) {
    return OnEachRank(ends_, body);
  }

  TurnedClock clock_;
  std::vector<std::unique_ptr<Collective>> ends_;
};

// Rank r's rows: in its columns what only it knows, elsewhere nothing.
struct Rows {
  Rows(uint32_t rank, size_t stride, std::span<const ByteColumns> columns)
      : bytes(kRows * stride, 0), columns(columns), stride(stride) {
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t at = columns[rank].begin; at < columns[rank].end; ++at) {
        bytes[row * stride + at] = Value(row, at);
      }
    }
  }
  GatheredRows view() { return {bytes.data(), kRows, stride, columns}; }
  static uint8_t Value(size_t row, size_t at) { return static_cast<uint8_t>(1 + row * 31 + at); }

  static constexpr size_t kRows = 3;
  std::vector<uint8_t> bytes;
  std::span<const ByteColumns> columns;
  size_t stride;
};

TEST_F(ThreadCollectiveTest, WhatGoesToTheFirstRankIsOnNoOther) {
  Make(3);
  const std::vector<ByteColumns> columns = {{0, 2}, {2, 3}, {3, 7}};
  for (const absl::Status& status : OnEach([&](Collective* end) -> absl::Status {
         Rows rows(end->rank(), 7, columns);
         const Rows own = rows;
         GatheredRows view = rows.view();
         view.to_first = true;
         RETURN_IF_ERROR(end->Gather({1, 1, 1}, view));
         RETURN_IF_ERROR(end->Barrier({1, 1, 2}));  // Others may read them until here.
         const bool all = std::find(rows.bytes.begin(), rows.bytes.end(), 0) == rows.bytes.end();
         const bool right = end->rank() == 0 ? all : rows.bytes == own.bytes;
         return right ? absl::OkStatus() : absl::DataLossError("columns of another rank");
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  for (const absl::Status& status : OnEach([&](Collective* end) {
         Rows rows(end->rank(), 7, columns);
         GatheredRows view = rows.view();
         view.to_first = end->rank() == 1;
         const absl::Status met = end->Gather({1, 1, 3}, view);
         (void)end->Barrier({1, 1, 4});
         return met;
       })) {
    EXPECT_FALSE(status.ok());
  }
}

TEST_F(ThreadCollectiveTest, EachRankGetsTheColumnsOfAllOthersAgainAndAgain) {
  for (const bool spins : {false, true}) {
    Make(4, spins);
    // Unequal ones, one of none, and a gap that nobody has.
    const std::vector<ByteColumns> columns = {{0, 5}, {5, 5}, {5, 17}, {20, 24}};
    const auto statuses = OnEach([&](Collective* end) -> absl::Status {
      for (uint32_t call = 0; call < 50; ++call) {
        Rows rows(end->rank(), 24 + end->rank(), columns);
        RETURN_IF_ERROR(end->Gather({1, 7, 2 * call}, rows.view()));
        for (size_t row = 0; row < Rows::kRows; ++row) {
          for (size_t at = 0; at < 24; ++at) {
            const uint8_t expected = at >= 17 && at < 20 ? 0 : Rows::Value(row, at);
            if (rows.bytes[row * rows.stride + at] != expected) {
              return absl::DataLossError(absl::StrCat("call ", call, " row ", row, " at ", at));
            }
          }
        }
        // `rows` goes, so all have to have copied.
        RETURN_IF_ERROR(end->Barrier({1, 7, 2 * call + 1}));
      }
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

TEST_F(ThreadCollectiveTest, ARankThatIsOneStepBehindIsRefusedByAll) {
  Make(3);
  const auto statuses = OnEach([](Collective* end) {
    return end->Barrier({4, end->rank() == 1 ? 8u : 9u, 2});
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(ReasonOf(status), kCollectiveDiffers);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(status.message().find("rank 0 is at call 2 of step 9 of epoch 4"), std::string::npos)
        << status;
    EXPECT_NE(status.message().find("rank 1 at call 2 of step 8 of epoch 4"), std::string::npos)
        << status;
  }
  // And nothing is gathered any more.
  for (const absl::Status& status : OnEach([](Collective* end) {
         return end->Barrier({4, 9, 3});
       })) {
    EXPECT_EQ(ReasonOf(status), kCollectiveDiffers);
  }
}

TEST_F(ThreadCollectiveTest, AnotherEpochCallOrShapeIsRefused) {
  const std::vector<ByteColumns> halves = {{0, 4}, {4, 8}};
  const std::vector<ByteColumns> others = {{0, 2}, {2, 8}};
  std::vector<uint8_t> bytes(64);
  const auto refused = [&](const std::function<absl::Status(Collective*, bool)>& call) {
    Make(2);
    for (const absl::Status& status :
         OnEach([&](Collective* end) { return call(end, end->rank() == 1); })) {
      EXPECT_EQ(ReasonOf(status), kCollectiveDiffers) << status;
    }
  };
  const auto rows = [&](bool second, size_t count, const std::vector<ByteColumns>& columns) {
    return GatheredRows{bytes.data() + (second ? 32 : 0), count, 8, columns};
  };
  refused([](Collective* end, bool second) { return end->Barrier({second ? 2u : 1u, 1, 1}); });
  refused([](Collective* end, bool second) { return end->Barrier({1, 1, second ? 2u : 1u}); });
  refused([&](Collective* end, bool second) {
    return end->Gather({1, 1, 1}, rows(second, second ? 3 : 2, halves));
  });
  refused([&](Collective* end, bool second) {
    return end->Gather({1, 1, 1}, rows(second, 2, second ? others : halves));
  });
  refused([&](Collective* end, bool second) {
    return second ? end->Barrier({1, 1, 1}) : end->Gather({1, 1, 1}, rows(second, 2, halves));
  });
}

TEST_F(ThreadCollectiveTest, AnAbortIsHeardByThoseWhoWaitAndThoseWhoCome) {
  Make(3);
  const auto statuses = OnEach([](Collective* end) {
    if (end->rank() == 2) {
      end->Abort(absl::DataLossError("its memory is gone"));
      end->Abort(absl::UnknownError("later"));
    }
    return end->Barrier({1, 1, 1});
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_EQ(ReasonOf(status), kCollectiveAborted);
    EXPECT_NE(status.message().find("rank 2 gave up: its memory is gone"), std::string::npos)
        << status;
  }
}

TEST_F(ThreadCollectiveTest, ARankThatNeverComesIsNamedOnceTheTimeHasPassed) {
  Make(3);
  std::atomic<int> ended{0};
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> threads;
  for (const size_t rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      statuses[rank] = ends_[rank]->Barrier({1, 5, 3});
      ++ended;
    });
  }
  // However long it takes until each waits: it has a second from then on, by this clock.
  while (ended < 2) {
    clock_.Turn(milliseconds(400));
    std::this_thread::sleep_for(milliseconds(1));
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(ReasonOf(status), kCollectiveTimeout);
    EXPECT_NE(
        status.message().find("rank 2 did not come to call 3 of step 5 of epoch 1 within 1000 ms"),
        std::string::npos)
        << status;
  }
  // It hears of it when it comes after all.
  EXPECT_EQ(ReasonOf(ends_[2]->Barrier({1, 5, 3})), kCollectiveTimeout);
}

TEST_F(ThreadCollectiveTest, ARankMayComeLateAsLongAsTheTimeHasNotPassed) {
  Make(2);
  std::thread late([&] {
    clock_.Turn(milliseconds(999));
    EXPECT_TRUE(ends_[1]->Barrier({1, 1, 1}).ok());
  });
  EXPECT_TRUE(ends_[0]->Barrier({1, 1, 1}).ok());
  late.join();
}

TEST_F(ThreadCollectiveTest, OneRankWaitsForNobody) {
  Make(1);
  const std::vector<ByteColumns> all = {{0, 8}};
  std::vector<uint8_t> bytes = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<uint8_t> before = bytes;
  EXPECT_TRUE(ends_[0]->Gather({1, 1, 1}, {bytes.data(), 1, 8, all}).ok());
  EXPECT_TRUE(ends_[0]->Barrier({1, 1, 2}).ok());
  EXPECT_EQ(bytes, before);
}

}  // namespace
}  // namespace strata
