#include "worker/ranks/expected_ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

#include "common/status.h"
#include "tests/worker/collective/memory_channels.h"

namespace strata {
namespace {

constexpr RankSecret kSecret = {1, 2, 3, 250};

std::unique_ptr<RankChannel> Channel() {
  return std::make_unique<testing::MemoryChannel>(std::make_shared<testing::MemoryPipe>(),
                                                  std::make_shared<testing::MemoryPipe>());
}

RankHello Hello(uint32_t from, RankConnection use = RankConnection::kGathers) {
  return {.secret = kSecret, .epoch = 9, .from = from, .to = 2, .use = use};
}

TEST(RankHelloTest, ItIsReadAsItWasWrittenAndAnyChangeIsRefused) {
  const RankHello hello = Hello(3, RankConnection::kCalls);
  std::array<uint8_t, kRankHelloBytes> bytes;
  EncodeRankHello(hello, bytes);
  const auto read = DecodeRankHello(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, hello);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto changed = bytes;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_EQ(ReasonOf(DecodeRankHello(changed).status()), kRankHelloRefused) << bit;
  }
  RankHello unknown = hello;
  unknown.use = static_cast<RankConnection>(3);
  EncodeRankHello(unknown, bytes);
  EXPECT_FALSE(DecodeRankHello(bytes).ok());
}

TEST(ExpectedRanksTest, ItIsCompleteOnceAllThatConnectHaveAndAllThatItDialsAreDialled) {
  ExpectedRanks expected(kSecret, 9, 2, 4);
  EXPECT_EQ(expected.Missing(), "rank 0 (calls), rank 0, rank 1, rank 3");
  EXPECT_TRUE(expected.Take(Hello(0, RankConnection::kCalls), Channel()).ok());
  EXPECT_TRUE(expected.Take(Hello(3), Channel()).ok());
  EXPECT_EQ(expected.Missing(), "rank 0, rank 1");
  EXPECT_TRUE(expected.Take(Hello(0), Channel()).ok());
  EXPECT_FALSE(expected.complete());
  const RankHello to = expected.HelloTo(1);
  EXPECT_EQ(to.from, 2u);
  EXPECT_EQ(to.to, 1u);
  expected.Dialled(1, Channel());
  ASSERT_TRUE(expected.complete());
  const RankChannels channels = expected.Release();
  EXPECT_EQ(channels.epoch, 9u);
  ASSERT_EQ(channels.calls.size(), 1u);
  ASSERT_EQ(channels.gathers.size(), 4u);
  EXPECT_EQ(channels.gathers[2], nullptr);
  for (const size_t other : {0u, 1u, 3u}) {
    EXPECT_NE(channels.gathers[other], nullptr);
  }
}

TEST(ExpectedRanksTest, WhoDoesNotKnowTheSecretIsRefusedWhateverItSays) {
  ExpectedRanks expected(kSecret, 9, 2, 4);
  for (size_t byte = 0; byte < kRankSecretBytes; ++byte) {
    RankHello hello = Hello(0);
    hello.secret[byte] ^= 1;
    hello.epoch = 8;
    const absl::Status status = expected.Take(hello, Channel());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_EQ(ReasonOf(status), kRankHelloRefused);
  }
  EXPECT_EQ(expected.Missing(), "rank 0 (calls), rank 0, rank 1, rank 3");
}

TEST(ExpectedRanksTest, WhatIsNotExpectedIsRefused) {
  ExpectedRanks expected(kSecret, 9, 2, 4);
  const auto refused = [&](const RankHello& hello) {
    const absl::Status status = expected.Take(hello, Channel());
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
    return ReasonOf(status) == kRankHelloRefused;
  };
  RankHello hello = Hello(0);
  hello.epoch = 8;
  EXPECT_TRUE(refused(hello));
  hello = Hello(0);
  hello.to = 1;
  EXPECT_TRUE(refused(hello));
  EXPECT_TRUE(refused(Hello(1)));  // Is dialled from here.
  EXPECT_TRUE(refused(Hello(2)));
  EXPECT_TRUE(refused(Hello(4)));
  EXPECT_TRUE(refused(Hello(3, RankConnection::kCalls)));  // No leader.
  EXPECT_FALSE(refused(Hello(0)));
  EXPECT_TRUE(refused(Hello(0)));  // Once more.
}

}  // namespace
}  // namespace strata
