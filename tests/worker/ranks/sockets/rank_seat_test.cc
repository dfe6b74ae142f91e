// Followers that are asked to join, over sockets.
#include "worker/ranks/sockets/rank_seat.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status.h"
#include "tests/eventually.h"
#include "tests/worker/backend/models/made_up_stage.h"
#include "tests/worker/collective/turned_clock.h"
#include "tests/worker/ranks/followed_stage.h"
#include "worker/ranks/leader_shard.h"
#include "worker/ranks/rank_call.h"
#include "worker/ranks/sockets/rank_sockets.h"

namespace strata::testing {
namespace {

constexpr RankSecret kSecret = {3, 1, 4};
constexpr milliseconds kDial(kGiveUpAfter);

// Whose calls do nothing, but that of ResizeKv waits as long as the gate is closed.
struct Gate {
  Mutex mutex;
  std::atomic<bool> came = false;
};
class GatedRank : public RankShard {
 public:
  GatedRank(const StageSpec* spec, Gate* gate) : calls_(spec), gate_(*gate) {}

  void Connect(std::unique_ptr<Collective> collective, uint64_t /*epoch*/) override {
    collective_ = std::move(collective);
  }
  void Abort(const absl::Status& why) override { collective_->Abort(why); }
  absl::Status ShareResidual() override { return absl::OkStatus(); }
  absl::Status GatherLogits(std::span<float> /*logits*/) override { return absl::OkStatus(); }
  absl::Status GatherBytes(uint8_t* row, std::span<const ByteColumns> columns) override {
    return collective_->Gather({}, {row, 1, columns.back().end, columns});
  }
  void ForPageParts(
      uint32_t /*group*/,
      const std::function<void(size_t, size_t, size_t, size_t)>& /*copy*/) const override {}
  const ShardCalls& calls() const override { return calls_; }
  const Batch& batch() const override { return batch_; }
  absl::Status Begin(const Batch& /*batch*/) override { return absl::OkStatus(); }
  absl::Status Embed() override { return absl::OkStatus(); }
  absl::Status EmbedInputs(std::span<const uint32_t> /*rows*/,
                           std::span<const float> /*values*/) override {
    return absl::OkStatus();
  }
  absl::Status SetResidual(std::span<const float> /*values*/) override { return absl::OkStatus(); }
  absl::Status Attention(uint32_t /*layer*/) override { return absl::OkStatus(); }
  absl::Status AttentionOfSome(uint32_t /*layer*/, std::span<const uint32_t> /*rows*/) override {
    return absl::OkStatus();
  }
  absl::Status Mlp(uint32_t /*layer*/) override { return absl::OkStatus(); }
  absl::Status ReadResidual(std::span<float> /*out*/) override { return absl::OkStatus(); }
  absl::Status Head(std::span<const uint32_t> /*rows*/) override { return absl::OkStatus(); }
  absl::Status ReadLogits(std::span<float> /*out*/) override { return absl::OkStatus(); }
  absl::Status CopyPage(uint32_t /*group*/, PageId /*from*/, PageId /*to*/) override {
    return absl::OkStatus();
  }
  absl::Status ResizeKv(std::span<const uint64_t> /*pages*/) override {
    gate_.came = true;
    MutexLock open(&gate_.mutex);
    return absl::OkStatus();
  }
  uint64_t MemoryBytes() const override { return 0; }
  uint64_t StepReadBytes() const override { return 0; }

 private:
  const ShardCalls calls_;
  const Batch batch_ = {};
  Gate& gate_;
  std::unique_ptr<Collective> collective_;
};

class RankSeatTest : public ::testing::Test {
 protected:
  void Make(const std::vector<double>& shares) {
    leader_ = nullptr;
    seats_.clear();
    backends_ = BackendsOf(shares.size());
    auto ranks = LoadRanks(backends_, shares, stage_.spec, model_, nullptr, nullptr);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    RankTimes times = {.clock = &clock_, .timeout = kDial, .silence = kDial, .pause = [](uint64_t) {
                         std::this_thread::yield();
                       }};
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      times.names.push_back(absl::StrCat("w", rank));
    }
    seats_.resize(shares.size());
    for (uint32_t rank = 1; rank < shares.size(); ++rank) {
      seats_[rank] = std::make_unique<RankSeat>(std::move((*ranks)[rank]), stage_.spec,
                                                RankSeatConfig{.rank = rank,
                                                               .times = times,
                                                               .host = "127.0.0.1",
                                                               .port = port_,
                                                               .wire = wire_,
                                                               .log = nullptr});
    }
    leader_ = std::make_unique<LeaderShard>(std::move((*ranks)[0]), times,
                                            [this](uint64_t epoch) { return Joined(epoch); });
  }
  absl::StatusOr<RankAddress> Ask(const RankToJoin& join) {
    ASSIGN_OR_RETURN(const uint16_t port, seats_[join.rank]->Join(join));
    return RankAddress{"127.0.0.1", port};
  }
  absl::StatusOr<RankChannels> Joined(uint64_t epoch) {
    return JoinFollowers(
        kSecret, epoch, static_cast<uint32_t>(seats_.size()), wire_,
        [this](const RankToJoin& join) { return Ask(join); }, kDial);
  }
  absl::Status Join(uint64_t epoch) {
    ASSIGN_OR_RETURN(RankChannels channels, Joined(epoch));
    leader_->Join(std::move(channels));
    return absl::OkStatus();
  }
  // The residual stream after the first layer.
  absl::StatusOr<std::vector<float>> Step(Shard* shard) {
    const std::vector<uint32_t> ids = {3, 4, 5, 6};
    const std::vector<PageId> pages = {7};
    const std::vector<PageTableView> tables = {{0, pages}};
    const std::vector<BatchItem> items = {{0, 4, 0, tables}};
    std::vector<float> values(4 * stage_.spec.model.hidden);
    RETURN_IF_ERROR(shard->Begin({4, ids, items}));
    RETURN_IF_ERROR(shard->Embed());
    RETURN_IF_ERROR(shard->Attention(0));
    RETURN_IF_ERROR(shard->Mlp(0));
    RETURN_IF_ERROR(shard->ReadResidual(values));
    return values;
  }

  TurnedClock clock_;  // Stands still, where a test does not turn it.
  RankWire wire_ = RankWire::kPlain;
  uint16_t port_ = 0;  // Of each seat.
  const MadeUpModel model_{{.heads = 6, .kv_heads = 2}};
  const MadeUpStage stage_ = WholeModel(model_);
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<std::unique_ptr<RankSeat>> seats_;  // By rank; the first is null.
  std::unique_ptr<LeaderShard> leader_;
};

TEST_F(RankSeatTest, RanksThatWereAskedToJoinComputeTheBitsOfOneInOneEpochAfterAnother) {
  const auto one = BackendsOf(1);
  const auto alone = *one[0]->Load(stage_.spec, model_, nullptr, nullptr);
  const auto expected = Step(alone.get());
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const std::vector<double>& shares : {std::vector<double>{1, 1}, {2, 1, 1}, {1, 1, 1, 1}}) {
    for (const RankWire wire : {RankWire::kPlain, RankWire::kTls}) {
      wire_ = wire;
      ASSERT_NO_FATAL_FAILURE(Make(shares));
      for (const uint64_t epoch : {3u, 4u}) {
        const absl::Status joined = Join(epoch);
        ASSERT_TRUE(joined.ok()) << joined;
        const auto values = Step(leader_.get());
        ASSERT_TRUE(values.ok()) << values.status();
        EXPECT_EQ(*values, *expected);
      }
    }
  }
}

TEST_F(RankSeatTest, APortThatIsGivenIsUsedInEachEpoch) {
  port_ = RankListener::Open("127.0.0.1", 0, milliseconds(0)).value()->port();
  ASSERT_NO_FATAL_FAILURE(Make({1, 1}));
  for (const uint64_t epoch : {1u, 2u, 3u}) {
    // The connections of the epoch before are there until it ends.
    const absl::Status joined = Join(epoch);
    ASSERT_TRUE(joined.ok()) << joined;
    EXPECT_TRUE(Step(leader_.get()).ok());
  }
  const auto asked = seats_[1]->Join({.epoch = 4, .rank = 1, .ranks = 2, .lower = {}});
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(*asked, port_);
}

TEST_F(RankSeatTest, ASeatThatEndsBreaksTheStage) {
  ASSERT_NO_FATAL_FAILURE(Make({1, 1, 1}));
  ASSERT_TRUE(Join(1).ok());
  ASSERT_TRUE(Step(leader_.get()).ok());
  seats_[2] = nullptr;
  const absl::Status lost = Step(leader_.get()).status();
  EXPECT_EQ(ReasonOf(lost), kRanksBroken) << lost;
  EXPECT_NE(lost.message().find("rank 2 (w2)"), std::string::npos) << lost;
}

TEST_F(RankSeatTest, ACallThatIsComputedIsSeenAndOneThatWaitsForAnotherRankIsNot) {
  Gate gate;
  const RankTimes times = {.clock = &clock_,
                           .timeout = kDial,
                           .silence = kDial,
                           .pause = [](uint64_t) { std::this_thread::yield(); },
                           .names = {"w0", "w1"}};
  RankSeat seat(std::make_unique<GatedRank>(&stage_.spec, &gate), stage_.spec,
                {.rank = 1, .times = times, .host = "127.0.0.1", .log = nullptr});
  EXPECT_EQ(seat.call_at_hand(), 0u);
  auto leader = JoinFollowers(
      kSecret, 1, 2, wire_,
      [&](const RankToJoin& join) -> absl::StatusOr<RankAddress> {
        ASSIGN_OR_RETURN(const uint16_t port, seat.Join(join));
        return RankAddress{.host = "127.0.0.1", .port = port};
      },
      kDial);
  ASSERT_TRUE(leader.ok()) << leader.status();
  {
    MutexLock closed(&gate.mutex);
    std::vector<uint8_t> frame;
    const std::vector<uint64_t> pages(stage_.spec.kv_pages.size());
    EncodeRankCall({.kind = RankCallKind::kResizeKv, .kv_pages = pages}, 1, 1, &frame);
    ASSERT_EQ(leader->calls[1]->Send(frame).value(), frame.size());
    ASSERT_TRUE(Eventually([&] { return gate.came.load(); }));
    clock_.Turn(milliseconds(1000));  // It waited for the call.
    EXPECT_EQ(seat.call_at_hand(), 1u);
  }
  // Its answer is gathered.
  EXPECT_TRUE(Eventually([&] { return seat.call_at_hand() == 0; }));
}

TEST_F(RankSeatTest, KvIsLostWhereRanksAreJoinedAnewAndKeptElse) {
  ASSERT_NO_FATAL_FAILURE(Make({1, 1}));
  ASSERT_TRUE(leader_->BeginEpoch(1).ok());
  EXPECT_TRUE(leader_->TakeKvLost());
  ASSERT_TRUE(Step(leader_.get()).ok());
  ASSERT_TRUE(leader_->BeginEpoch(2).ok());
  EXPECT_FALSE(leader_->TakeKvLost());
  ASSERT_TRUE(Step(leader_.get()).ok());
  ASSERT_TRUE(seats_[1]->Join({.epoch = 3, .rank = 1, .ranks = 2}).ok());  // Ends that one.
  EXPECT_EQ(ReasonOf(Step(leader_.get()).status()), kRanksBroken);
  EXPECT_FALSE(leader_->TakeKvLost());
  ASSERT_TRUE(leader_->BeginEpoch(4).ok());
  EXPECT_TRUE(leader_->TakeKvLost());
  EXPECT_TRUE(Step(leader_.get()).ok());
}

TEST_F(RankSeatTest, WhatItIsNotAskedRightlyIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Make({1, 1, 1}));
  const auto join = [&](const RankToJoin& ask) { return seats_[2]->Join(ask).status(); };
  const std::vector<RankAddress> lower = {{"127.0.0.1", 9}};
  EXPECT_EQ(ReasonOf(join({.epoch = 1, .rank = 1, .ranks = 3, .lower = lower})), "RANK_JOIN");
  EXPECT_EQ(ReasonOf(join({.epoch = 1, .rank = 2, .ranks = 4, .lower = lower})), "RANK_JOIN");
  EXPECT_EQ(ReasonOf(join({.epoch = 1, .rank = 2, .ranks = 3, .lower = {}})), "RANK_JOIN");
  EXPECT_TRUE(join({.epoch = 2, .rank = 2, .ranks = 3, .lower = lower}).ok());
  const absl::Status old = join({.epoch = 2, .rank = 2, .ranks = 3, .lower = lower});
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(old), "RANK_JOIN");
}

TEST_F(RankSeatTest, AFollowerThatCannotBeAskedEndsTheJoining) {
  ASSERT_NO_FATAL_FAILURE(Make({1, 1}));
  const auto joined = JoinFollowers(
      kSecret, 1, 2, wire_,
      [](const RankToJoin&) -> absl::StatusOr<RankAddress> {
        return Error(absl::StatusCode::kNotFound, "NO_DEPLOYMENT", "not loaded");
      },
      kDial);
  EXPECT_EQ(ReasonOf(joined.status()), "NO_DEPLOYMENT");
  EXPECT_EQ(ReasonOf(Step(leader_.get()).status()), kRanksBroken);
}

}  // namespace
}  // namespace strata::testing
