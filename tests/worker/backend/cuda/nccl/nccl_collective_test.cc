// Gathers by NCCL, driven through a stand-in of its calls: what they give, and that each call that
// fails and each wait that never ends is a typed error of all ranks.
#include "worker/backend/cuda/nccl/nccl_collective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "tests/worker/backend/cuda/nccl/host_device.h"
#include "tests/worker/backend/cuda/nccl/stand_in_nccl.h"
#include "tests/worker/collective/on_each_rank.h"
#include "tests/worker/collective/turned_clock.h"
#include "worker/backend/cuda/nccl/nccl_library.h"
#include "worker/backend/shard.h"

namespace strata::testing {
namespace {

using cuda::NcclResult;

constexpr milliseconds kTimeout(1000);

class NcclCollectiveTest : public ::testing::Test {
 protected:
  absl::Status Make(uint32_t ranks, uint64_t staging_bytes = 1 << 12) {
    ends_.clear();
    devices_.clear();
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      devices_.push_back(std::make_shared<HostDevice>());
    }
    const std::vector<std::shared_ptr<cuda::Device>> devices(devices_.begin(), devices_.end());
    auto made = cuda::MakeNcclCollectives(StandInNccl::calls(), devices,
                                          {.timeout = kTimeout,
                                           .clock = &clock_,
                                           .pause = [this] { Pause(); },
                                           .staging_bytes = staging_bytes});
    RETURN_IF_ERROR(made.status());
    ends_ = *std::move(made);
    return absl::OkStatus();
  }
  // Once ranks have looked for a while the timeout passes: once, or again and again.
  void LetTimePassOnce() { once_ = true; }
  void LetTimePass() { always_ = true; }

  // body(end) of each rank on a thread of its own; what each returned.
  std::vector<absl::Status> OnEach(const std::function<absl::Status(Collective*)>& body) {
    return OnEachRank(ends_, body);
  }
  // All ranks gather `rows` rows of these columns, and wait.
  std::vector<absl::Status> GatherOnAll(const std::vector<ByteColumns>& columns, size_t rows = 3) {
    memory_.assign(ends_.size(), std::vector<uint8_t>(rows * kStride));
    return OnEach([&](Collective* end) -> absl::Status {
      RETURN_IF_ERROR(
          end->Gather({1, 2, 3}, {memory_[end->rank()].data(), rows, kStride, columns}));
      return end->Finish();
    });
  }
  // `failed` said why, and the others that it gave up; nothing is left of NCCL, and the ends are of
  // no use any more.
  void ExpectAllHear(const std::vector<absl::Status>& statuses, uint32_t failed,
                     const std::string& reason) {
    for (uint32_t rank = 0; rank < statuses.size(); ++rank) {
      const std::string expected = rank == failed ? reason : kCollectiveAborted;
      EXPECT_EQ(ReasonOf(statuses[rank]), expected) << rank << ": " << statuses[rank];
    }
    EXPECT_EQ(nccl_.live(), 0);
    for (const absl::Status& status : GatherOnAll(kHalves)) {
      EXPECT_FALSE(status.ok());
    }
    EXPECT_EQ(nccl_.misuses(), 0);
  }

  void Pause() {
    if (++looks_ % 20 == 0 && (always_.load() || once_.exchange(false))) {
      clock_.Turn(kTimeout);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

  static constexpr size_t kStride = 48;
  const std::vector<ByteColumns> kHalves = {{0, 24}, {24, 48}};
  const std::vector<ByteColumns> kUneven = {{0, 32}, {32, 48}};

  StandInNccl nccl_;
  TurnedClock clock_;
  std::atomic<uint64_t> looks_{0};
  std::atomic<bool> once_{false};
  std::atomic<bool> always_{false};
  std::vector<std::shared_ptr<HostDevice>> devices_;
  std::vector<std::vector<uint8_t>> memory_;  // By rank; outlives what is on streams.
  std::vector<std::unique_ptr<Collective>> ends_;
};

uint8_t Value(size_t call, size_t row, size_t at) {
  return static_cast<uint8_t>(1 + call * 101 + row * 31 + at);
}

// Gathers again and again, and says what differs from what each rank wrote.
absl::Status GatherOften(Collective* end, const std::vector<ByteColumns>& columns, size_t rows,
                         size_t stride) {
  std::vector<std::vector<uint8_t>> of_calls;
  for (uint32_t call = 0; call < 5; ++call) {
    std::vector<uint8_t>& bytes = of_calls.emplace_back(rows * stride);
    const ByteColumns own = columns[end->rank()];
    for (size_t row = 0; row < rows; ++row) {
      for (size_t at = own.begin; at < own.end; ++at) {
        bytes[row * stride + at] = Value(call, row, at);
      }
    }
    RETURN_IF_ERROR(end->Gather({1, 7, call}, {bytes.data(), rows, stride, columns}));
  }
  RETURN_IF_ERROR(end->Finish());
  for (uint32_t call = 0; call < of_calls.size(); ++call) {
    for (size_t row = 0; row < rows; ++row) {
      for (size_t at = 0; at < stride; ++at) {
        const bool anyones = std::any_of(columns.begin(), columns.end(), [at](ByteColumns one) {
          return one.begin <= at && at < one.end;
        });
        if (of_calls[call][row * stride + at] != (anyones ? Value(call, row, at) : 0)) {
          return absl::DataLossError(absl::StrCat("call ", call, " row ", row, " at ", at));
        }
      }
    }
  }
  return absl::OkStatus();
}

TEST_F(NcclCollectiveTest, EachRankGetsTheColumnsOfAllOthers) {
  const std::vector<std::vector<ByteColumns>> shapes = {
      {{0, 24}},                                // One rank.
      {{0, 24}, {24, 48}},                      // Equal parts.
      {{0, 24}, {24, 32}, {32, 40}},            // 2:1:1, and a row is wider.
      {{0, 5}, {5, 5}, {5, 17}, {20, 24}},      // One has none, and nobody has some.
      {{0, 48}, {48, 48}, {48, 48}, {48, 48}},  // All is the first rank's.
      {{0, 8}, {8, 16}, {16, 24}, {24, 32}},
      {{0, 0}, {0, 0}},  // There is nothing.
  };
  for (const int delay : {0, 2}) {
    nccl_.Delay(delay);
    for (const std::vector<ByteColumns>& columns : shapes) {
      for (const size_t rows : {0, 1, 3, 20}) {
        // So that 20 rows go in pieces.
        ASSERT_TRUE(Make(static_cast<uint32_t>(columns.size()), 150).ok());
        for (const absl::Status& status :
             OnEach([&](Collective* end) { return GatherOften(end, columns, rows, kStride); })) {
          EXPECT_TRUE(status.ok()) << columns.size() << " ranks, " << rows << " rows: " << status;
        }
      }
    }
  }
  ends_.clear();
  EXPECT_EQ(nccl_.live(), 0);
  EXPECT_EQ(nccl_.misuses(), 0);
}

TEST_F(NcclCollectiveTest, EqualPartsAreOneCallAndOthersAGroupOfBroadcasts) {
  ASSERT_TRUE(Make(2).ok());
  for (const absl::Status& status : GatherOnAll(kHalves)) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(nccl_.count(NcclCall::kAllGather), 2u);
  EXPECT_EQ(nccl_.count(NcclCall::kBroadcast), 0u);
  for (const absl::Status& status : GatherOnAll(kUneven)) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(nccl_.count(NcclCall::kAllGather), 2u);
  EXPECT_EQ(nccl_.count(NcclCall::kBroadcast), 4u);
  EXPECT_EQ(nccl_.count(NcclCall::kGroupEnd), 2u);
}

TEST_F(NcclCollectiveTest, ABarrierIsOneOfTheHost) {
  ASSERT_TRUE(Make(3).ok());
  for (const absl::Status& status : OnEach([](Collective* end) -> absl::Status {
         RETURN_IF_ERROR(end->Barrier({1, 1, 1}));
         return end->Barrier({1, end->rank() == 2 ? 3u : 2u, 1});
       })) {
    EXPECT_EQ(ReasonOf(status), kCollectiveDiffers) << status;
  }
  EXPECT_EQ(nccl_.live(), 0);
}

TEST_F(NcclCollectiveTest, AnOldLibraryIsRefused) {
  nccl_.set_version(22703);
  const absl::Status status = Make(2);
  EXPECT_EQ(ReasonOf(status), cuda::kNcclTooOld);
  EXPECT_NE(status.message().find("2.27.3"), std::string::npos) << status;
  EXPECT_NE(status.message().find("2.28.0"), std::string::npos) << status;
  EXPECT_EQ(nccl_.count(NcclCall::kInit), 0u);
}

// Each call of those that join ranks, and how it fails.
TEST_F(NcclCollectiveTest, ACallThatFailsWhileRanksJoinIsItsError) {
  for (const NcclCall call : {NcclCall::kGetVersion, NcclCall::kGetUniqueId}) {
    nccl_.Fail(call, NcclResult::kSystemError);
    EXPECT_EQ(ReasonOf(Make(2)), cuda::kNcclFailed);
    nccl_.Fail(call, NcclResult::kSuccess);
  }
  for (const NcclCall call : {NcclCall::kInit, NcclCall::kAsyncError}) {
    for (const int rank : {0, 1, 2}) {
      nccl_.Delay(rank == 1 ? StandInNccl::kForEver : 0);  // The others wait, or do not.
      nccl_.Fail(call, NcclResult::kInternalError, rank);
      const absl::Status status = Make(3);
      EXPECT_EQ(ReasonOf(status), cuda::kNcclFailed) << status;
      EXPECT_TRUE(absl::IsInternal(status));
      EXPECT_NE(status.message().find("an error of the test"), std::string::npos) << status;
      EXPECT_FALSE(DetailOf(status).hint().empty());
      EXPECT_EQ(nccl_.live(), 0);
      nccl_.Fail(call, NcclResult::kSuccess, rank);
    }
  }
  EXPECT_EQ(nccl_.misuses(), 0);
}

TEST_F(NcclCollectiveTest, ACallThatFailsWhileRanksGatherEndsAllOfThem) {
  for (const NcclCall call : {NcclCall::kAllGather, NcclCall::kBroadcast, NcclCall::kAsyncError}) {
    for (const uint32_t rank : {0, 1}) {
      ASSERT_TRUE(Make(2).ok());
      nccl_.Fail(call, NcclResult::kInvalidArgument, static_cast<int>(rank));
      ExpectAllHear(GatherOnAll(call == NcclCall::kBroadcast ? kUneven : kHalves), rank,
                    cuda::kNcclFailed);
      nccl_.Fail(call, NcclResult::kSuccess, static_cast<int>(rank));
    }
  }
  for (const NcclCall call : {NcclCall::kGroupStart, NcclCall::kGroupEnd}) {
    ASSERT_TRUE(Make(2).ok());
    nccl_.Fail(call, NcclResult::kInternalError);
    const auto statuses = GatherOnAll(kUneven);
    for (const absl::Status& status : statuses) {  // It may be that both have failed.
      EXPECT_TRUE(ReasonOf(status) == cuda::kNcclFailed || ReasonOf(status) == kCollectiveAborted)
          << status;
    }
    EXPECT_TRUE(std::any_of(statuses.begin(), statuses.end(), [](const absl::Status& status) {
      return ReasonOf(status) == cuda::kNcclFailed;
    }));
    EXPECT_EQ(nccl_.live(), 0);
    nccl_.Fail(call, NcclResult::kSuccess);
  }
  EXPECT_EQ(nccl_.misuses(), 0);
  // And with new ones all is well.
  ASSERT_TRUE(Make(2).ok());
  for (const absl::Status& status : GatherOnAll(kUneven)) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(NcclCollectiveTest, AnAbortThatFailsChangesNothing) {
  nccl_.Fail(NcclCall::kAbort, NcclResult::kUnhandledCudaError);
  ASSERT_TRUE(Make(2).ok());
  nccl_.Fail(NcclCall::kAllGather, NcclResult::kInvalidUsage, 1);
  ExpectAllHear(GatherOnAll(kHalves), 1, cuda::kNcclFailed);
  EXPECT_EQ(nccl_.count(NcclCall::kAbort), 2u);
}

TEST_F(NcclCollectiveTest, AnotherRankThatIsGoneIsAnAbort) {
  ASSERT_TRUE(Make(2).ok());
  nccl_.HoldStreams();
  nccl_.FailLater(0, NcclResult::kRemoteError);
  const auto statuses = GatherOnAll(kHalves);
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(ReasonOf(status), kCollectiveAborted) << status;
    EXPECT_TRUE(absl::IsAborted(status));
    EXPECT_NE(status.message().find("remote process exited"), std::string::npos) << status;
  }
  EXPECT_EQ(nccl_.live(), 0);
}

// NCCL hears of it first, or the host as it looks at the stream.
TEST_F(NcclCollectiveTest, ADeviceThatIsLostIsTheDevicesError) {
  ASSERT_TRUE(Make(2).ok());
  memory_.assign(2, std::vector<uint8_t>(kStride));
  nccl_.Fail(NcclCall::kAllGather, NcclResult::kUnhandledCudaError, 1);
  const auto statuses = OnEach([&](Collective* end) -> absl::Status {
    if (end->rank() == 1) {
      devices_[1]->Lose();
    }
    RETURN_IF_ERROR(end->Gather({1, 2, 3}, {memory_[end->rank()].data(), 1, kStride, kHalves}));
    return end->Finish();
  });
  ExpectAllHear(statuses, 1, kDeviceFailed);

  nccl_.Fail(NcclCall::kAllGather, NcclResult::kSuccess, 1);
  for (const uint32_t rank : {0, 1}) {
    ASSERT_TRUE(Make(2).ok());
    nccl_.HoldStreams();
    std::thread loses([&] {
      while (devices_[rank]->looks() == 0) {
        std::this_thread::yield();
      }
      devices_[rank]->Lose();
    });
    const auto while_waiting = GatherOnAll(kHalves);
    loses.join();
    ExpectAllHear(while_waiting, rank, kDeviceFailed);
  }
}

// An error of NCCL's calls to CUDA that does not stay with the device is NCCL's.
TEST_F(NcclCollectiveTest, ACallOfCudaThatFailsAloneIsNcclsError) {
  ASSERT_TRUE(Make(2).ok());
  nccl_.Fail(NcclCall::kAllGather, NcclResult::kUnhandledCudaError, 1);
  ExpectAllHear(GatherOnAll(kHalves), 1, cuda::kNcclFailed);
}

TEST_F(NcclCollectiveTest, WaitsThatNeverEndAreTimeouts) {
  LetTimePassOnce();
  nccl_.Delay(StandInNccl::kForEver);
  const absl::Status status = Make(2);
  EXPECT_EQ(ReasonOf(status), kCollectiveTimeout) << status;
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_NE(status.message().find("ncclCommInitRankConfig"), std::string::npos) << status;
  EXPECT_NE(status.message().find("1000 ms"), std::string::npos) << status;
  EXPECT_EQ(nccl_.live(), 0);
  // Of a gather: NCCL does not begin it, or the stream does not end it.
  for (const bool begins : {false, true}) {
    for (const auto& columns : {kHalves, kUneven}) {
      nccl_.Delay(0);
      ASSERT_TRUE(Make(2).ok());
      if (begins) {
        nccl_.HoldStreams();
      } else {
        nccl_.Delay(StandInNccl::kForEver);
      }
      LetTimePassOnce();
      for (const absl::Status& one : GatherOnAll(columns)) {
        EXPECT_EQ(ReasonOf(one), kCollectiveTimeout) << one;
      }
      EXPECT_EQ(nccl_.live(), 0);
    }
  }
  EXPECT_EQ(nccl_.misuses(), 0);
}

TEST_F(NcclCollectiveTest, ARankThatDoesNotComeIsNamed) {
  ASSERT_TRUE(Make(2).ok());
  memory_.assign(2, std::vector<uint8_t>(kStride));
  std::atomic<bool> done = false;
  std::thread time([&] {
    while (!done.load()) {
      clock_.Turn(milliseconds(100));
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  const absl::Status status = ends_[0]->Gather({4, 9, 2}, {memory_[0].data(), 1, kStride, kHalves});
  done.store(true);
  time.join();
  EXPECT_EQ(ReasonOf(status), kCollectiveTimeout) << status;
  EXPECT_NE(status.message().find("rank 1 did not come to call 2 of step 9 of epoch 4"),
            std::string::npos)
      << status;
  EXPECT_EQ(ends_[1]->Gather({4, 9, 2}, {memory_[1].data(), 1, kStride, kHalves}), status);
  EXPECT_EQ(nccl_.count(NcclCall::kAllGather), 0u) << "nothing was put on a stream";
}

TEST_F(NcclCollectiveTest, AbortsThatNeverReturnAreLeftBehind) {
  LetTimePass();
  ASSERT_TRUE(Make(2).ok());
  nccl_.HoldAborts();
  nccl_.Fail(NcclCall::kAllGather, NcclResult::kInternalError, 0);
  const auto statuses = GatherOnAll(kHalves);
  EXPECT_EQ(ReasonOf(statuses[0]), cuda::kNcclFailed);
  EXPECT_EQ(ReasonOf(statuses[1]), kCollectiveAborted);
  while (nccl_.live() > 0) {
    std::this_thread::yield();
  }
  ends_.clear();
  EXPECT_EQ(nccl_.count(NcclCall::kAbort), 0u) << "none has returned";
  nccl_.ReleaseAborts();
}

TEST_F(NcclCollectiveTest, AnAbortEndsTheWaitsOfAllStreams) {
  ASSERT_TRUE(Make(3).ok());
  nccl_.HoldStreams();
  std::thread aborts([&] {
    while (nccl_.count(NcclCall::kAllGather) < 3) {
      std::this_thread::yield();
    }
    ends_[1]->Abort(absl::CancelledError("the worker ends"));
  });
  const auto statuses = GatherOnAll({{0, 16}, {16, 32}, {32, 48}});
  aborts.join();
  for (const absl::Status& status : statuses) {
    EXPECT_NE(status.message().find("the worker ends"), std::string::npos) << status;
  }
  EXPECT_EQ(ReasonOf(statuses[0]), kCollectiveAborted);
  EXPECT_EQ(nccl_.live(), 0);
  EXPECT_EQ(nccl_.misuses(), 0);
}

TEST_F(NcclCollectiveTest, AnEndThatIsDestroyedEndsTheOthers) {
  ASSERT_TRUE(Make(2).ok());
  memory_.assign(2, std::vector<uint8_t>(kStride));
  ends_[0].reset();
  const absl::Status status = ends_[1]->Gather({1, 1, 1}, {memory_[1].data(), 1, kStride, kHalves});
  EXPECT_EQ(ReasonOf(status), kCollectiveAborted) << status;
  EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status;
}

TEST_F(NcclCollectiveTest, RanksThatDifferAreRefusedBeforeAnythingIsGathered) {
  const std::vector<std::function<void(CollectivePoint*, GatheredRows*)>> others = {
      [](CollectivePoint* point, GatheredRows*) { --point->step; },
      [](CollectivePoint*, GatheredRows* rows) { rows->rows = 2; },
      [](CollectivePoint*, GatheredRows* rows) { rows->stride = kStride - 8; },
      [this](CollectivePoint*, GatheredRows* rows) { rows->columns = kUneven; },
      [](CollectivePoint*, GatheredRows* rows) { rows->to_first = true; },
  };
  for (const auto& other : others) {
    ASSERT_TRUE(Make(2, 1 << 10).ok());
    memory_.assign(2, std::vector<uint8_t>(3 * kStride));
    for (const absl::Status& status : OnEach([&](Collective* end) {
           CollectivePoint point = {4, 9, 2};
           GatheredRows rows = {memory_[end->rank()].data(), 3, kStride, kHalves};
           if (end->rank() == 1) {
             other(&point, &rows);
           }
           return end->Gather(point, rows);
         })) {
      EXPECT_EQ(ReasonOf(status), kCollectiveDiffers) << status;
      EXPECT_NE(status.message().find("step 9 of epoch 4"), std::string::npos) << status;
    }
    EXPECT_EQ(nccl_.count(NcclCall::kAllGather) + nccl_.count(NcclCall::kBroadcast), 0u);
    EXPECT_EQ(nccl_.live(), 0);
  }
}

}  // namespace
}  // namespace strata::testing
