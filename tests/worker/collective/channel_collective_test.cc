#include "worker/collective/channel_collective.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "common/status.h"
#include "tests/worker/collective/memory_channels.h"
#include "tests/worker/collective/on_each_rank.h"
#include "tests/worker/collective/turned_clock.h"
#include "worker/collective/rank_frame.h"
#include "worker/collective/sockets/socket_channel.h"

namespace strata {
namespace {

using testing::MemoryChannel;
using testing::MemoryPipe;

class ChannelCollectiveTest : public ::testing::Test {
 protected:
  using Channels = std::vector<std::vector<std::unique_ptr<RankChannel>>>;  // [rank][other].

  static Channels InMemory(size_t ranks, std::vector<std::shared_ptr<MemoryPipe>>* pipes) {
    Channels channels(ranks);
    for (auto& of_rank : channels) {
      of_rank.resize(ranks);
    }
    for (size_t a = 0; a < ranks; ++a) {
      for (size_t b = a + 1; b < ranks; ++b) {
        const auto there = std::make_shared<MemoryPipe>();
        const auto back = std::make_shared<MemoryPipe>();
        channels[a][b] = std::make_unique<MemoryChannel>(there, back);
        channels[b][a] = std::make_unique<MemoryChannel>(back, there);
        pipes->insert(pipes->end(), {there, back});
      }
    }
    return channels;
  }
  static Channels OverSockets(size_t ranks) {
    Channels channels(ranks);
    for (auto& of_rank : channels) {
      of_rank.resize(ranks);
    }
    for (size_t a = 0; a < ranks; ++a) {
      for (size_t b = a + 1; b < ranks; ++b) {
        int pair[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        auto one = MakeSocketChannel(pair[0]);
        auto other = MakeSocketChannel(pair[1]);
        EXPECT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
        channels[a][b] = *std::move(one);
        channels[b][a] = *std::move(other);
      }
    }
    return channels;
  }

  void Make(Channels channels) {
    ends_.clear();
    for (uint32_t rank = 0; rank < channels.size(); ++rank) {
      ends_.push_back(MakeChannelCollective(
          rank, std::move(channels[rank]),
          {.timeout = milliseconds(1000), .clock = &clock_, .pause = [](uint64_t) {
             std::this_thread::yield();
           }}));
    }
  }

  std::vector<absl::Status> OnEach(const std::function<absl::Status(Collective*)>& body) {
    return OnEachRank(ends_, body);
  }

  static uint8_t Value(size_t row, size_t at) { return static_cast<uint8_t>(1 + row * 31 + at); }

  // Gathers and barriers, of which each rank checks what it got.
  void ExpectGathers(const std::vector<ByteColumns>& columns, size_t rows, uint32_t calls) {
    const size_t width = columns.back().end;
    const auto statuses = OnEach([&](Collective* end) -> absl::Status {
      for (uint32_t call = 0; call < calls; ++call) {
        std::vector<uint8_t> bytes(rows * width, 0);
        const ByteColumns own = columns[end->rank()];
        for (size_t row = 0; row < rows; ++row) {
          for (size_t at = own.begin; at < own.end; ++at) {
            bytes[row * width + at] = Value(row, at);
          }
        }
        RETURN_IF_ERROR(end->Gather({1, 7, 2 * call}, {bytes.data(), rows, width, columns}));
        for (size_t i = 0; i < bytes.size(); ++i) {
          if (bytes[i] != Value(i / width, i % width)) {
            return absl::DataLossError("other bytes than were sent");
          }
        }
        RETURN_IF_ERROR(end->Barrier({1, 7, 2 * call + 1}));
      }
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  TurnedClock clock_;
  std::vector<std::shared_ptr<MemoryPipe>> pipes_;
  std::vector<std::unique_ptr<Collective>> ends_;
};

TEST_F(ChannelCollectiveTest, EachRankGetsTheColumnsOfAllOthersInWhateverPiecesTheyCome) {
  Make(InMemory(3, &pipes_));
  ExpectGathers({{0, 5}, {5, 5}, {5, 17}}, 3, 3);
}

TEST_F(ChannelCollectiveTest, WhatGoesToTheFirstRankGoesToNoOther) {
  Make(InMemory(3, &pipes_));
  const std::vector<ByteColumns> columns = {{0, 200}, {200, 500}, {500, 900}};
  std::vector<std::vector<uint8_t>> bytes(3, std::vector<uint8_t>(1800));
  for (const absl::Status& status : OnEach([&](Collective* end) {
         std::vector<uint8_t>& own = bytes[end->rank()];
         std::fill(own.begin(), own.end(), static_cast<uint8_t>(10 + end->rank()));
         return end->Gather({1, 1, 1}, {own.data(), 2, 900, columns, /*to_first=*/true});
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  for (size_t at = 0; at < 900; ++at) {
    EXPECT_EQ(bytes[0][900 + at], at < 200 ? 10 : at < 500 ? 11 : 12) << at;
  }
  size_t passed = 0;
  for (const auto& pipe : pipes_) {
    passed += pipe->passed;
  }
  EXPECT_EQ(passed, 6 * kRankFrameHeadBytes + 2 * (300 + 400));
}

TEST_F(ChannelCollectiveTest, RanksThatMeanOthersToHaveItAreRefused) {
  Make(InMemory(2, &pipes_));
  const std::vector<ByteColumns> halves = {{0, 4}, {4, 8}};
  std::vector<std::vector<uint8_t>> bytes(2, std::vector<uint8_t>(8));
  for (const absl::Status& status : OnEach([&](Collective* end) {
         return end->Gather({1, 1, 1}, {bytes[end->rank()].data(), 1, 8, halves, end->rank() == 1});
       })) {
    const std::string reason = ReasonOf(status);
    EXPECT_TRUE(reason == kCollectiveDiffers || reason == kCollectiveAborted) << status;
  }
}

TEST_F(ChannelCollectiveTest, MoreThanSocketsHoldGoesBothWaysAtOnce) {
  Make(OverSockets(3));
  ExpectGathers({{0, 3000}, {3000, 5000}, {5000, 8192}}, 512, 2);
}

TEST_F(ChannelCollectiveTest, ARankThatIsOneStepBehindIsRefusedByAll) {
  Make(InMemory(3, &pipes_));
  const auto statuses = OnEach([](Collective* end) {
    return end->Barrier({4, end->rank() == 1 ? 8u : 9u, 2});
  });
  size_t differ = 0;
  for (const absl::Status& status : statuses) {
    const std::string reason = ReasonOf(status);
    EXPECT_TRUE(reason == kCollectiveDiffers || reason == kCollectiveAborted) << status;
    EXPECT_TRUE(reason != kCollectiveDiffers ||
                status.message().find("of step 8 of epoch 4") != std::string::npos)
        << status;
    differ += reason == kCollectiveDiffers ? 1 : 0;
  }
  EXPECT_GE(differ, 1u);
  for (const absl::Status& status : OnEach([](Collective* end) {
         return end->Barrier({4, 9, 3});
       })) {
    EXPECT_FALSE(status.ok());
  }
}

TEST_F(ChannelCollectiveTest, OtherRowsOrColumnsAreRefused) {
  const std::vector<ByteColumns> halves = {{0, 4}, {4, 8}};
  const std::vector<ByteColumns> others = {{0, 2}, {2, 8}};
  for (const bool columns : {false, true}) {
    Make(InMemory(2, &pipes_));
    std::vector<std::vector<uint8_t>> bytes(2, std::vector<uint8_t>(64));
    for (const absl::Status& status : OnEach([&](Collective* end) {
           const bool second = end->rank() == 1;
           return end->Gather(
               {1, 1, 1}, {bytes[end->rank()].data(), second && !columns ? size_t{3} : size_t{2}, 8,
                           second && columns ? others : halves});
         })) {
      const std::string reason = ReasonOf(status);
      EXPECT_TRUE(reason == kCollectiveDiffers || reason == kCollectiveAborted) << status;
    }
  }
}

TEST_F(ChannelCollectiveTest, AnAbortIsHeardByThoseWhoWaitAndThoseWhoCome) {
  Make(OverSockets(3));
  const auto statuses = OnEach([](Collective* end) {
    if (end->rank() == 2) {
      end->Abort(absl::DataLossError("its memory is gone"));
    }
    return end->Barrier({1, 1, 1});
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_EQ(ReasonOf(status), kCollectiveAborted);
    EXPECT_NE(status.message().find("gave up"), std::string::npos) << status;
  }
  EXPECT_NE(statuses[2].message().find("rank 2 gave up: its memory is gone"), std::string::npos);
}

TEST_F(ChannelCollectiveTest, WhoHearsOfAnAbortHearsWhichRankIsTheCause) {
  for (const bool says : {false, true}) {
    Channels channels = OverSockets(3);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      ends_.push_back(MakeChannelCollective(rank, std::move(channels[rank]),
                                            {.clock = &clock_, .names = {"w0", "w1", "w2"}}));
    }
    ends_[2]->Abort(says ? absl::Status(Error(absl::StatusCode::kUnavailable, "RANK_GONE", "gone")
                                            .Fact(kRankFact, uint64_t{1}))
                         : absl::DataLossError("its memory is gone"));
    for (const uint32_t hears : {2u, 0u}) {
      const v1::ErrorDetail heard = DetailOf(ends_[hears]->Barrier({1, 1, 1}));
      EXPECT_EQ(heard.node(), says ? "w1" : "w2") << hears;
      EXPECT_EQ(heard.facts().at(kRankFact), says ? "1" : "2") << hears;
    }
    ends_.clear();
  }
}

TEST_F(ChannelCollectiveTest, AnAbortWhileARankWaitsEndsItsWait) {
  Make(InMemory(2, &pipes_));
  std::thread waits([&] { EXPECT_EQ(ReasonOf(ends_[0]->Barrier({1, 1, 1})), kCollectiveAborted); });
  ends_[0]->Abort(absl::CancelledError("no more"));
  waits.join();
  EXPECT_EQ(ReasonOf(ends_[1]->Barrier({1, 1, 1})), kCollectiveAborted);
}

TEST_F(ChannelCollectiveTest, ARankThatIsGoneEndsTheWaitsOfAll) {
  Make(OverSockets(3));
  ends_[1].reset();
  ends_[1] = std::move(ends_[2]);
  ends_.pop_back();
  for (const absl::Status& status : OnEach([](Collective* end) {
         return end->Barrier({1, 1, 1});
       })) {
    EXPECT_EQ(ReasonOf(status), kCollectiveAborted) << status;
  }
}

TEST_F(ChannelCollectiveTest, DamagedBytesAreFound) {
  const std::vector<ByteColumns> halves = {{0, 40}, {40, 80}};
  for (const size_t damaged : {3u, 20u, 70u, 100u}) {
    pipes_.clear();
    Channels channels = InMemory(2, &pipes_);
    pipes_[0]->change = [damaged](size_t at, uint8_t byte) {
      return static_cast<uint8_t>(at == damaged ? byte ^ 16 : byte);
    };
    Make(std::move(channels));
    std::vector<std::vector<uint8_t>> bytes(2, std::vector<uint8_t>(160, 9));
    const auto statuses = OnEach([&](Collective* end) {
      return end->Gather({1, 1, 1}, {bytes[end->rank()].data(), 2, 80, halves});
    });
    EXPECT_EQ(ReasonOf(statuses[1]), kRankFrame) << damaged << ": " << statuses[1];
    // The other one hears of it, at the latest when it calls again.
    const absl::Status next = ends_[0]->Barrier({1, 1, 2});
    EXPECT_FALSE(statuses[0].ok() && next.ok());
  }
}

TEST_F(ChannelCollectiveTest, ARankThatStillSendsHearsOfAnAbortBehindAFrame) {
  // The second rank sends all at once, and gives up over the first one's head: the first one has
  // what it waits for, and nobody takes the rest of its own frame.
  Channels channels = InMemory(2, &pipes_);
  pipes_[0]->change = [](size_t at, uint8_t byte) {
    return static_cast<uint8_t>(at == 3 ? byte ^ 16 : byte);
  };
  pipes_[1]->capacity = 4096;
  Make(std::move(channels));
  const std::vector<ByteColumns> halves = {{0, 40}, {40, 80}};
  std::vector<std::vector<uint8_t>> bytes(2, std::vector<uint8_t>(160, 9));
  const auto statuses = OnEach([&](Collective* end) {
    return end->Gather({1, 1, 1}, {bytes[end->rank()].data(), 2, 80, halves});
  });
  EXPECT_EQ(ReasonOf(statuses[1]), kRankFrame) << statuses[1];
  EXPECT_EQ(ReasonOf(statuses[0]), kCollectiveAborted) << statuses[0];
}

TEST_F(ChannelCollectiveTest, ARankThatNeverComesIsNamedOnceTheTimeHasPassed) {
  Make(OverSockets(2));
  std::atomic<bool> ended{false};
  absl::Status status;
  std::thread waits([&] {
    status = ends_[0]->Barrier({1, 5, 3});
    ended = true;
  });
  while (!ended) {
    clock_.Turn(milliseconds(400));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  waits.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(status), kCollectiveTimeout);
  EXPECT_NE(status.message().find("rank 1 did not come to call 3 of step 5 of epoch 1"),
            std::string::npos)
      << status;
  EXPECT_EQ(DetailOf(status).facts().at(kRankFact), "1");
  // What the other one had sent is there, and behind it that it gave up.
  EXPECT_TRUE(ends_[1]->Barrier({1, 5, 3}).ok());
  const absl::Status next = ends_[1]->Barrier({1, 5, 4});
  EXPECT_EQ(ReasonOf(next), kCollectiveAborted);
  EXPECT_NE(next.message().find("rank 1 did not come to call 3"), std::string::npos) << next;
}

}  // namespace
}  // namespace strata
