// A stage over workers: the same bits as of one rank, and how a rank fails.
#include "worker/ranks/leader_shard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "common/digest.h"
#include "common/status.h"
#include "tests/eventually.h"
#include "tests/worker/backend/models/made_up_stage.h"
#include "tests/worker/collective/turned_clock.h"
#include "tests/worker/ranks/followed_stage.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace strata::testing {
namespace {

std::vector<uint32_t> Ids(size_t count) {
  std::vector<uint32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 3);
  return ids;
}

// Of the last of `ids`, behind as many in the pages.
absl::StatusOr<std::vector<float>> Logits(Shard* shard, const StageSpec& stage,
                                          std::span<const uint32_t> ids, uint32_t position,
                                          const std::vector<PageId>& pages) {
  const auto rows = static_cast<uint32_t>(ids.size()) - position;
  const std::vector<PageTableView> tables(stage.kv_pages.size(), {0, pages});
  const std::vector<BatchItem> items = {{0, rows, position, tables}};
  const std::vector<uint32_t> last = {rows - 1};
  const std::vector<uint32_t> only = {0};
  std::vector<float> logits(stage.model.vocab);
  RETURN_IF_ERROR(shard->Begin({rows, ids.subspan(position), items}));
  RETURN_IF_ERROR(shard->Embed());
  for (uint32_t layer = stage.first_layer; layer < stage.last_layer; ++layer) {
    RETURN_IF_ERROR(shard->Attention(layer));
    RETURN_IF_ERROR(shard->Mlp(layer));
  }
  RETURN_IF_ERROR(shard->AttentionOfSome(stage.last_layer, last));
  RETURN_IF_ERROR(shard->Mlp(stage.last_layer));
  RETURN_IF_ERROR(shard->Head(only));
  RETURN_IF_ERROR(shard->ReadLogits(logits));
  return logits;
}

// Another rank's end, through which everything goes.
class Passing : public RankChannel {
 public:
  explicit Passing(std::unique_ptr<RankChannel> inner) : inner_(std::move(inner)) {}
  absl::StatusOr<size_t> Send(std::span<const uint8_t> bytes) override {
    return inner_->Send(bytes);
  }
  absl::StatusOr<size_t> Receive(std::span<uint8_t> out) override { return inner_->Receive(out); }
  void EndSending() override { inner_->EndSending(); }

 protected:
  std::unique_ptr<RankChannel> inner_;
};

// Of a process that is killed: its connections close, and nothing says why.
class Mortal : public Passing {
 public:
  Mortal(std::unique_ptr<RankChannel> inner, const std::atomic<bool>* dead)
      : Passing(std::move(inner)), dead_(*dead) {}
  absl::StatusOr<size_t> Send(std::span<const uint8_t> bytes) override {
    return Dead() ? Gone() : inner_->Send(bytes);
  }
  absl::StatusOr<size_t> Receive(std::span<uint8_t> out) override {
    return Dead() ? Gone() : inner_->Receive(out);
  }
  void EndSending() override {
    if (!Dead()) {
      inner_->EndSending();
    }
  }

 private:
  static absl::StatusOr<size_t> Gone() { return absl::UnavailableError("killed"); }
  bool Dead() {
    if (dead_) {
      inner_ = nullptr;
    }
    return inner_ == nullptr;
  }
  const std::atomic<bool>& dead_;
};

// Nothing comes while it is stalled.
class Stalling : public Passing {
 public:
  Stalling(std::unique_ptr<RankChannel> inner, const std::atomic<bool>* stalled)
      : Passing(std::move(inner)), stalled_(*stalled) {}
  absl::StatusOr<size_t> Receive(std::span<uint8_t> out) override {
    return stalled_ ? absl::StatusOr<size_t>(size_t{0}) : inner_->Receive(out);
  }

 private:
  const std::atomic<bool>& stalled_;
};

// Leaves out one call of the leader; those behind it are numbered as if it had never been, or keep
// their numbers.
class LeavingOut : public Passing {
 public:
  LeavingOut(std::unique_ptr<RankChannel> inner, RankCallKind kind, uint32_t which, bool renumbers)
      : Passing(std::move(inner)), kind_(kind), left_(which), renumbers_(renumbers) {}

  absl::StatusOr<size_t> Receive(std::span<uint8_t> out) override {
    if (ready_ == 0) {
      RETURN_IF_ERROR(TakeFrame());
    }
    const size_t count = std::min(out.size(), ready_);
    std::copy_n(frame_.begin(), count, out.begin());
    frame_.erase(frame_.begin(), frame_.begin() + static_cast<ptrdiff_t>(count));
    ready_ -= count;
    return count;
  }

 private:
  // `ready_` := the bytes of a frame that is whole.
  absl::Status TakeFrame() {
    size_t wants = kRankCallHeadBytes;
    if (frame_.size() >= kRankCallHeadBytes) {
      uint64_t bytes = 0;
      std::memcpy(&bytes, frame_.data() + 32, sizeof(bytes));
      wants += bytes;
    }
    std::vector<uint8_t> more(wants - frame_.size());
    ASSIGN_OR_RETURN(const size_t filled, inner_->Receive(more));
    frame_.insert(frame_.end(), more.begin(), more.begin() + static_cast<ptrdiff_t>(filled));
    uint64_t bytes = 1;
    if (frame_.size() >= kRankCallHeadBytes) {
      std::memcpy(&bytes, frame_.data() + 32, sizeof(bytes));
    }
    if (frame_.size() < kRankCallHeadBytes + bytes && bytes != 0) {
      return absl::OkStatus();
    }
    uint32_t kind = 0;
    std::memcpy(&kind, frame_.data() + 8, sizeof(kind));
    if (static_cast<RankCallKind>(kind) == kind_ && left_ > 0 && --left_ == 0) {
      frame_.clear();
      dropped_ = true;
      return absl::OkStatus();
    }
    if (dropped_ && renumbers_) {
      uint64_t number = 0;
      std::memcpy(&number, frame_.data() + 24, sizeof(number));
      --number;
      std::memcpy(frame_.data() + 24, &number, sizeof(number));
      const uint32_t crc = Crc32c(0, frame_.data(), 44);
      std::memcpy(frame_.data() + 44, &crc, sizeof(crc));
    }
    ready_ = frame_.size();
    return absl::OkStatus();
  }

  const RankCallKind kind_;
  uint32_t left_;
  const bool renumbers_;
  bool dropped_ = false;
  std::vector<uint8_t> frame_;
  size_t ready_ = 0;
};

class LeaderShardTest : public ::testing::Test {
 protected:
  std::unique_ptr<FollowedStage> Make(FollowedOptions options) {
    if (backends_.size() < options.shares.size()) {
      backends_ = BackendsOf(options.shares.size());
    }
    auto ranks = LoadRanks(std::span(backends_).first(options.shares.size()), options.shares,
                           stage_.spec, model_, nullptr, nullptr);
    EXPECT_TRUE(ranks.ok()) << ranks.status();
    return std::make_unique<FollowedStage>(*std::move(ranks), stage_.spec, options);
  }
  // By one rank alone.
  const std::vector<float>& Expected() {
    if (expected_.empty()) {
      const auto backend = BackendsOf(1);
      one_ = *backend[0]->Load(stage_.spec, model_, nullptr, nullptr);
      expected_ = *Logits(one_.get(), stage_.spec, ids_, 0, pages_);
    }
    return expected_;
  }
  void ExpectTheSameBits(FollowedStage* stage) {
    const auto logits = Logits(stage->leader(), stage_.spec, ids_, 0, pages_);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_EQ(*logits, Expected());
  }
  // What a step answers.
  absl::Status Step(FollowedStage* stage) {
    return Logits(stage->leader(), stage_.spec, ids_, 0, pages_).status();
  }
  static void WhileTurning(TurnedClock* clock, const std::function<void()>& wait) {
    std::atomic<bool> ended{false};
    std::thread waits([&] {
      wait();
      ended = true;
    });
    while (!ended) {
      clock->Turn(milliseconds(300));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    waits.join();
  }
  static void ExpectBroken(const absl::Status& status, const std::string& by) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_EQ(ReasonOf(status), kRanksBroken) << status;
    EXPECT_NE(status.message().find(by), std::string::npos) << status;
  }

  const MadeUpModel model_{{.heads = 6, .kv_heads = 2}};
  const MadeUpStage stage_ = WholeModel(model_);
  const std::vector<uint32_t> ids_ = Ids(22);
  const std::vector<PageId> pages_ = {5, 2};
  std::vector<std::unique_ptr<Backend>> backends_;
  std::unique_ptr<Shard> one_;
  std::vector<float> expected_;
};

TEST_F(LeaderShardTest, ItComputesTheBitsOfOneRank) {
  for (const std::vector<double>& shares :
       {std::vector<double>{1, 1}, {2, 1, 1}, {1, 1.5, 1, 1}, {1000, 1}}) {
    const auto sockets = Make({.shares = shares});
    ExpectTheSameBits(sockets.get());
    ExpectTheSameBits(sockets.get());
    const auto memory = Make({.shares = shares, .pair = [] { return MemoryPair(61); }});
    ExpectTheSameBits(memory.get());
  }
}

TEST_F(LeaderShardTest, PagesAreThoseOfOneRankAndGoFromOneToTheOther) {
  const std::vector<float> expected = Expected();
  for (const std::vector<double>& shares : {std::vector<double>{1, 1}, {2, 1, 1}}) {
    const auto stage = Make({.shares = shares});
    LeaderShard* const leader = stage->leader();
    ASSERT_EQ(leader->PageBytes(0), one_->PageBytes(0));
    std::vector<uint8_t> of_one(one_->PageBytes(0));
    std::vector<uint8_t> of_ranks(one_->PageBytes(0));
    for (const PageId page : pages_) {
      ASSERT_TRUE(one_->ReadPage(0, page, of_one).ok());
      ASSERT_TRUE(leader->WritePage(0, page + 10, of_one).ok());
      ASSERT_TRUE(leader->CopyPage(0, page + 10, page + 20).ok());
      ASSERT_TRUE(leader->ReadPage(0, page + 20, of_ranks).ok());
      EXPECT_EQ(of_one, of_ranks);
    }
    const auto goes_on = Logits(leader, stage_.spec, ids_, 21, {pages_[0] + 20, pages_[1] + 20});
    ASSERT_TRUE(goes_on.ok()) << goes_on.status();
    EXPECT_EQ(*goes_on, expected);
  }
}

TEST_F(LeaderShardTest, WhatItRefusesItselfBreaksNothing) {
  const auto stage = Make({.shares = {1, 2}});
  LeaderShard* const leader = stage->leader();
  ExpectTheSameBits(stage.get());
  EXPECT_EQ(ReasonOf(leader->Attention(99)), "SHARD_MISUSE");
  EXPECT_EQ(ReasonOf(leader->Mlp(99)), "SHARD_MISUSE");
  EXPECT_EQ(ReasonOf(leader->Begin({3, {}, {}})), "SHARD_MISUSE");
  EXPECT_TRUE(leader->Attention(0).ok());  // Of no rows, on any rank.
  std::vector<float> logits(5);
  EXPECT_EQ(ReasonOf(leader->ReadLogits(logits)), "SHARD_MISUSE");
  std::vector<uint8_t> page(5);
  EXPECT_EQ(ReasonOf(leader->ReadPage(0, 0, page)), "SHARD_MISUSE");
  EXPECT_EQ(ReasonOf(leader->WritePage(0, 0, page)), "SHARD_MISUSE");
  EXPECT_EQ(ReasonOf(leader->CopyPage(0, 0, 1000)), "SHARD_MISUSE");
  ExpectTheSameBits(stage.get());
}

TEST_F(LeaderShardTest, PagesThatARankHasNoMemoryForAreOnNoRank) {
  const auto stage = Make({.shares = {2, 1, 1}});
  const std::vector<uint64_t> impossible = {uint64_t{1} << 40};
  const absl::Status refused = stage->leader()->ResizeKv(impossible);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_EQ(ReasonOf(Step(stage.get())), "SHARD_MISUSE");
  ASSERT_TRUE(stage->leader()->ResizeKv(std::vector<uint64_t>{64}).ok());
  ExpectTheSameBits(stage.get());
}

TEST_F(LeaderShardTest, AFollowerThatDiesIsNamedAndANewEpochGoesOn) {
  std::atomic<bool> dead{false};
  const auto mortal = [&](uint32_t rank,
                          std::unique_ptr<RankChannel> channel) -> std::unique_ptr<RankChannel> {
    return rank != 1 ? std::move(channel) : std::make_unique<Mortal>(std::move(channel), &dead);
  };
  FollowedOptions options = {.shares = {2, 1, 1}};
  options.calls = mortal;
  options.gathers = mortal;
  const auto stage = Make(options);
  ExpectTheSameBits(stage.get());
  dead = true;
  const absl::Status lost = Step(stage.get());
  ExpectBroken(lost, "rank 1 (w1)");
  EXPECT_EQ(DetailOf(lost).node(), "w1");
  EXPECT_EQ(Step(stage.get()), lost);
  EXPECT_EQ(stage->leader()->ResizeKv(std::vector<uint64_t>{64}), lost);
  EXPECT_FALSE(stage->Ended(1).ok());
  EXPECT_FALSE(stage->Ended(2).ok());  // Hears of it, and does not wait.
  options.calls = nullptr;
  options.gathers = nullptr;
  stage->Join(options);
  ExpectTheSameBits(stage.get());
}

TEST_F(LeaderShardTest, AFollowerThatIsLateIsNamed) {
  std::atomic<bool> stalled{false};
  TurnedClock clock;
  FollowedOptions options = {.shares = {1, 1, 1}};
  options.clock = &clock;
  options.timeout = milliseconds(1000);
  options.silence = milliseconds(3'600'000);
  options.calls = [&](uint32_t rank,
                      std::unique_ptr<RankChannel> channel) -> std::unique_ptr<RankChannel> {
    return rank != 2 ? std::move(channel)
                     : std::make_unique<Stalling>(std::move(channel), &stalled);
  };
  const auto stage = Make(options);
  ExpectTheSameBits(stage.get());
  stalled = true;
  absl::Status lost;
  WhileTurning(&clock, [&] { lost = Step(stage.get()); });
  ExpectBroken(lost, "rank 2 (w2) did not come");
  EXPECT_EQ(DetailOf(lost).node(), "w2");
  stalled = false;  // It comes in the end, and hears that nobody waits any more.
  EXPECT_FALSE(stage->Ended(2).ok());
}

TEST_F(LeaderShardTest, AFollowerThatTakesNoCallIsNamedAndNotOneThatDoes) {
  std::atomic<bool> stalled{true};
  TurnedClock clock;
  FollowedOptions options = {.shares = {1, 1, 1}, .pair = [] { return MemoryPair(64); }};
  options.clock = &clock;
  options.timeout = milliseconds(1000);
  options.silence = milliseconds(3'600'000);
  options.calls = [&](uint32_t rank,
                      std::unique_ptr<RankChannel> channel) -> std::unique_ptr<RankChannel> {
    return rank != 2 ? std::move(channel)
                     : std::make_unique<Stalling>(std::move(channel), &stalled);
  };
  const auto stage = Make(options);
  absl::Status lost;
  WhileTurning(&clock, [&] { lost = Step(stage.get()); });
  ExpectBroken(lost, "rank 2 (w2): it did not take a call within 1000 ms");
  EXPECT_EQ(DetailOf(lost).node(), "w2");
  stalled = false;
}

TEST_F(LeaderShardTest, WhileALateRankHoldsItsCallUpItSaysSo) {
  std::atomic<bool> stalled{false};
  TurnedClock clock;
  FollowedOptions options = {.shares = {1, 1}};
  options.clock = &clock;
  options.timeout = milliseconds(3'600'000);
  options.silence = milliseconds(3'600'000);
  options.calls = [&](uint32_t, std::unique_ptr<RankChannel> channel) {
    return std::make_unique<Stalling>(std::move(channel), &stalled);
  };
  const auto stage = Make(options);
  EXPECT_TRUE(stage->leader()->WaitsForWorkers());
  EXPECT_FALSE(stage->leader()->IsHeldUp());
  ExpectTheSameBits(stage.get());
  stalled = true;
  absl::Status late;
  std::thread step([&] { late = Step(stage.get()); });
  for (int second = 0; second < 10; ++second) {
    clock.Turn(milliseconds(1000));
    EXPECT_TRUE(Eventually([&] { return stage->leader()->IsHeldUp(); }));
  }
  stalled = false;
  step.join();
  EXPECT_TRUE(late.ok()) << late;
  clock.Turn(milliseconds(1000));
  EXPECT_FALSE(stage->leader()->IsHeldUp());
}

// Its calls are in order, and it is at the step before: all ranks refuse.
TEST_F(LeaderShardTest, AFollowerThatIsAStepBehindIsRefused) {
  FollowedOptions options = {.shares = {1, 1}};
  options.calls = [](uint32_t, std::unique_ptr<RankChannel> channel) {
    return std::make_unique<LeavingOut>(std::move(channel), RankCallKind::kBegin, 2, true);
  };
  const auto stage = Make(options);
  ExpectTheSameBits(stage.get());
  ExpectBroken(Step(stage.get()), "of step 1 of epoch 1");
  EXPECT_FALSE(stage->Ended(1).ok());
}

TEST_F(LeaderShardTest, ACallThatWasLostIsNoticed) {
  FollowedOptions options = {.shares = {1, 1}};
  options.calls = [](uint32_t, std::unique_ptr<RankChannel> channel) {
    return std::make_unique<LeavingOut>(std::move(channel), RankCallKind::kBegin, 2, false);
  };
  const auto stage = Make(options);
  ExpectTheSameBits(stage.get());
  ExpectBroken(Step(stage.get()), "rank 1 (w1) gave up");
  const absl::Status ended = stage->Ended(1);
  EXPECT_EQ(ReasonOf(ended), kRankFrame) << ended;
}

TEST_F(LeaderShardTest, AFollowerThatHearsNothingEndsTheEpoch) {
  TurnedClock clock;
  FollowedOptions options = {.shares = {1, 1}};
  options.clock = &clock;
  options.silence = milliseconds(5000);
  const auto stage = Make(options);
  ExpectTheSameBits(stage.get());
  absl::Status ended;
  WhileTurning(&clock, [&] { ended = stage->Ended(1); });
  EXPECT_EQ(ReasonOf(ended), kCollectiveTimeout) << ended;
  EXPECT_NE(ended.message().find("rank 0 (w0) was silent for 5000 ms"), std::string::npos) << ended;
  ExpectBroken(Step(stage.get()), "was silent");
}

TEST_F(LeaderShardTest, AFollowerIsStoppedWhileItWaits) {
  const auto stage = Make({.shares = {1, 1}});
  ExpectTheSameBits(stage.get());
  stage->follower(1)->Stop(absl::CancelledError("its worker stops"));
  EXPECT_TRUE(absl::IsCancelled(stage->Ended(1)));
  ExpectBroken(Step(stage.get()), "its worker stops");
}

TEST_F(LeaderShardTest, AnEpochThatItsLeaderEndsIsNoError) {
  const auto stage = Make({.shares = {1, 1, 1}});
  ExpectTheSameBits(stage.get());
  stage->leader()->End("unloaded");
  EXPECT_TRUE(stage->Ended(1).ok());
  EXPECT_TRUE(stage->Ended(2).ok());
  ExpectBroken(Step(stage.get()), "not joined");
}

TEST_F(LeaderShardTest, SignsOfLifeGoBetweenCallsOfAStep) {
  const auto stage = Make({.shares = {1, 1}, .pair = [] { return MemoryPair(4096); }});
  std::atomic<bool> done{false};
  std::thread beats([&] {
    while (!done) {
      stage->leader()->Beat();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  for (int i = 0; i < 3; ++i) {
    ExpectTheSameBits(stage.get());
  }
  done = true;
  beats.join();
}

TEST_F(LeaderShardTest, CallsOfABatchThatNeverBeganAreRefused) {
  for (const RankCallKind kind :
       {RankCallKind::kAttention, RankCallKind::kHead, RankCallKind::kShareResidual}) {
    backends_ = BackendsOf(2);
    auto ranks =
        LoadRanks(backends_, std::vector<double>{1, 1}, stage_.spec, model_, nullptr, nullptr);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    const SystemClock clock;
    RankFollower follower((*ranks)[1].get(), stage_.spec, 1,
                          {.clock = &clock, .names = {"w0", "w1"}});
    ChannelPair gathers = SocketPair();
    ChannelPair calls = SocketPair();
    std::vector<uint8_t> frame;
    EncodeRankCall({.kind = kind}, 4, 1, &frame);
    ASSERT_TRUE(calls.one->Send(frame).ok());
    RankChannels channels = {.epoch = 4, .gathers = {}, .calls = {}};
    channels.gathers.push_back(std::move(gathers.other));
    channels.gathers.push_back(nullptr);
    channels.calls.push_back(std::move(calls.other));
    EXPECT_EQ(ReasonOf(follower.Follow(std::move(channels))), kRankFrame);
  }
}

}  // namespace
}  // namespace strata::testing
