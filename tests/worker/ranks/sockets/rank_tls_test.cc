#include "worker/ranks/sockets/rank_tls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "common/status.h"
#include "tests/worker/collective/memory_channels.h"

namespace strata {
namespace {

constexpr RankSecret kSecret = {7, 7, 1};
constexpr size_t kBytes = 50'000;  // Several records of TLS.

std::vector<uint8_t> Bytes(uint8_t seed) {
  std::vector<uint8_t> bytes(kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(seed + i * 7 + i / 251);
  }
  return bytes;
}

class RankTlsTest : public ::testing::Test {
 protected:
  void Make(size_t capacity, const RankSecret& theirs = kSecret) {
    there_ = std::make_shared<testing::MemoryPipe>();
    back_ = std::make_shared<testing::MemoryPipe>();
    there_->capacity = capacity;
    back_->capacity = capacity;
    dials_ = std::make_unique<RankTls>(std::make_unique<testing::MemoryChannel>(there_, back_),
                                       kSecret, RankTls::Side::kDials);
    dialled_ = std::make_unique<RankTls>(std::make_unique<testing::MemoryChannel>(back_, there_),
                                         theirs, RankTls::Side::kIsDialled);
  }
  // What the handshakes end with.
  std::pair<absl::Status, absl::Status> Shake() {
    absl::StatusOr<bool> one = false;
    absl::StatusOr<bool> other = false;
    for (int i = 0; i < 100'000 && ((one.ok() && !*one) || (other.ok() && !*other)); ++i) {
      if (one.ok() && !*one) {
        one = dials_->Handshake();
      }
      if (other.ok() && !*other) {
        other = dialled_->Handshake();
      }
      // As an owner does with a connection that is none.
      if (!one.ok()) {
        dials_->EndSending();
      }
      if (!other.ok()) {
        dialled_->EndSending();
      }
    }
    return {one.status(), other.status()};
  }
  // Sends both ways at once, and returns what each end received.
  std::pair<std::vector<uint8_t>, std::vector<uint8_t>> Exchange(
      const std::vector<uint8_t>& one, const std::vector<uint8_t>& other) {
    std::pair<std::vector<uint8_t>, std::vector<uint8_t>> got;
    std::vector<uint8_t> room(777);
    size_t sent_one = 0;
    size_t sent_other = 0;
    const auto move = [&](RankTls* end, const std::vector<uint8_t>& out, size_t* sent,
                          std::vector<uint8_t>* in) {
      const auto went = end->Send(std::span(out).subspan(*sent));
      EXPECT_TRUE(went.ok()) << went.status();
      *sent += went.value_or(out.size());
      const auto came = end->Receive(room);
      EXPECT_TRUE(came.ok()) << came.status();
      in->insert(in->end(), room.begin(), room.begin() + static_cast<ptrdiff_t>(came.value_or(0)));
    };
    for (int i = 0; i < 1'000'000 && (got.first.size() < kBytes || got.second.size() < kBytes);
         ++i) {
      move(dials_.get(), one, &sent_one, &got.first);
      move(dialled_.get(), other, &sent_other, &got.second);
    }
    return got;
  }

  std::shared_ptr<testing::MemoryPipe> there_;
  std::shared_ptr<testing::MemoryPipe> back_;
  std::unique_ptr<RankTls> dials_;
  std::unique_ptr<RankTls> dialled_;
};

TEST_F(RankTlsTest, BytesGoBothWaysInWhateverPiecesTheyCome) {
  for (const size_t capacity : {7u, 1000u, 100'000u}) {
    Make(capacity);
    const auto [one, other] = Shake();
    ASSERT_TRUE(one.ok() && other.ok()) << one << other;
    const auto [came_back, came_there] = Exchange(Bytes(1), Bytes(2));
    EXPECT_EQ(came_there, Bytes(1));
    EXPECT_EQ(came_back, Bytes(2));
  }
}

TEST_F(RankTlsTest, NothingIsSentOrReceivedBeforeTheHandshakeIsOver) {
  Make(100'000);
  std::vector<uint8_t> bytes(10);
  EXPECT_EQ(*dials_->Send(bytes), 0u);
  EXPECT_EQ(*dialled_->Receive(bytes), 0u);
  EXPECT_TRUE(there_->bytes.empty());
}

TEST_F(RankTlsTest, WhoHasAnotherSecretIsRefusedAtBothEnds) {
  RankSecret other = kSecret;
  other.back() ^= 1;
  Make(1000, other);
  const auto [one, theirs] = Shake();
  for (const absl::Status& status : {one, theirs}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_EQ(ReasonOf(status), kRankHelloRefused) << status;
  }
}

TEST_F(RankTlsTest, WhatGoesOverTheWireHasNothingOfWhatIsSent) {
  Make(1'000'000);
  const auto [one, other] = Shake();
  ASSERT_TRUE(one.ok() && other.ok()) << one << other;
  const std::vector<uint8_t> zeros(4096, 0);
  ASSERT_EQ(*dials_->Send(zeros), zeros.size());
  EXPECT_LT(std::count(there_->bytes.begin(), there_->bytes.end(), 0), 100);
}

TEST_F(RankTlsTest, AnEndIsSaidBehindWhatWasSent) {
  Make(100'000);
  const auto [one, other] = Shake();
  ASSERT_TRUE(one.ok() && other.ok()) << one << other;
  const std::vector<uint8_t> bytes(10, 3);
  ASSERT_EQ(*dials_->Send(bytes), bytes.size());
  dials_->EndSending();
  std::vector<uint8_t> got(20);
  EXPECT_EQ(*dialled_->Receive(got), bytes.size());
  EXPECT_EQ(ReasonOf(dialled_->Receive(got).status()), "RANK_GONE");
}

TEST_F(RankTlsTest, AChangedByteEndsTheConnection) {
  Make(100'000);
  const auto [one, other] = Shake();
  ASSERT_TRUE(one.ok() && other.ok()) << one << other;
  there_->change = [at = there_->passed](size_t now, uint8_t byte) {
    return static_cast<uint8_t>(now == at + 30 ? byte ^ 1 : byte);
  };
  const std::vector<uint8_t> bytes(100, 3);
  ASSERT_EQ(*dials_->Send(bytes), bytes.size());
  std::vector<uint8_t> got(200);
  EXPECT_EQ(ReasonOf(dialled_->Receive(got).status()), "RANK_GONE");
}

}  // namespace
}  // namespace strata
