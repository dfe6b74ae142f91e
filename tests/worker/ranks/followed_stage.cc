#include "tests/worker/ranks/followed_stage.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "tests/worker/collective/memory_channels.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/collective/sockets/socket_channel.h"

namespace strata::testing {
namespace {

// Gives way at first, then sleeps.
void Pause(uint64_t idle_rounds) {
  if (idle_rounds < 64) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// The stage as a backend's shard: what is asked of it is asked of its leader.
class FollowedShard : public Shard {
 public:
  FollowedShard(std::vector<std::unique_ptr<RankShard>> ranks, const StageSpec& spec,
                const FollowedOptions& options)
      : stage_(std::move(ranks), spec, options), shard_(*stage_.leader()) {}

  absl::Status Begin(const Batch& batch) override { return shard_.Begin(batch); }
  absl::Status Embed() override { return shard_.Embed(); }
  absl::Status EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) override {
    return shard_.EmbedInputs(rows, values);
  }
  absl::Status SetResidual(std::span<const float> values) override {
    return shard_.SetResidual(values);
  }
  absl::Status Attention(uint32_t layer) override { return shard_.Attention(layer); }
  absl::Status AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) override {
    return shard_.AttentionOfSome(layer, rows);
  }
  absl::Status Mlp(uint32_t layer) override { return shard_.Mlp(layer); }
  absl::Status ReadResidual(std::span<float> out) override { return shard_.ReadResidual(out); }
  absl::Status Head(std::span<const uint32_t> rows) override { return shard_.Head(rows); }
  absl::Status ReadLogits(std::span<float> out) override { return shard_.ReadLogits(out); }
  absl::Status CopyPage(uint32_t group, PageId from, PageId to) override {
    return shard_.CopyPage(group, from, to);
  }
  uint64_t PageBytes(uint32_t group) const override { return shard_.PageBytes(group); }
  absl::Status ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) override {
    return shard_.ReadPage(group, page, out);
  }
  absl::Status WritePage(uint32_t group, PageId page, std::span<const uint8_t> in) override {
    return shard_.WritePage(group, page, in);
  }
  absl::Status ResizeKv(std::span<const uint64_t> pages) override { return shard_.ResizeKv(pages); }
  uint64_t MemoryBytes() const override { return shard_.MemoryBytes(); }
  uint64_t StepReadBytes() const override { return shard_.StepReadBytes(); }

 private:
  FollowedStage stage_;
  Shard& shard_;
};

class FollowedBackend : public Backend {
 public:
  explicit FollowedBackend(const FollowedOptions& options)
      : options_(options), backends_(BackendsOf(options.shares.size())) {}

  std::string name() const override { return backends_[0]->name(); }
  std::string numerics() const override { return backends_[0]->numerics(); }
  DeviceFacts facts() const override { return backends_[0]->facts(); }
  absl::Status Supports(const StageSpec& spec) const override {
    return backends_[0]->Supports(spec);
  }
  absl::StatusOr<std::unique_ptr<Shard>> Load(const StageSpec& spec, const TensorSource& weights,
                                              PackedStore* packed,
                                              const LoadProgressFn& progress) override {
    ASSIGN_OR_RETURN(auto ranks,
                     LoadRanks(backends_, options_.shares, spec, weights, packed, progress));
    return std::make_unique<FollowedShard>(std::move(ranks), spec, options_);
  }
  absl::StatusOr<DeviceSpeed> MeasureSpeed(double seconds, uint64_t bytes) override {
    return backends_[0]->MeasureSpeed(seconds, bytes);
  }

 private:
  const FollowedOptions options_;
  const std::vector<std::unique_ptr<Backend>> backends_;
};

}  // namespace

ChannelPair MemoryPair(size_t capacity) {
  const auto there = std::make_shared<MemoryPipe>();
  const auto back = std::make_shared<MemoryPipe>();
  there->capacity = capacity;
  back->capacity = capacity;
  return {std::make_unique<MemoryChannel>(there, back),
          std::make_unique<MemoryChannel>(back, there)};
}

ChannelPair SocketPair() {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  auto one = MakeSocketChannel(pair[0]);
  auto other = MakeSocketChannel(pair[1]);
  EXPECT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
  return {*std::move(one), *std::move(other)};
}

FollowedStage::FollowedStage(std::vector<std::unique_ptr<RankShard>> ranks, const StageSpec& spec,
                             const FollowedOptions& options)
    : shards_(std::move(ranks)), followers_(shards_.size()), ended_(shards_.size()) {
  RankTimes times = {.clock = options.clock != nullptr ? options.clock : &standing_,
                     .timeout = options.timeout,
                     .silence = options.silence,
                     .pause = Pause};
  for (size_t rank = 0; rank < shards_.size(); ++rank) {
    times.names.push_back(absl::StrCat("w", rank));
  }
  for (uint32_t rank = 1; rank < shards_.size(); ++rank) {
    followers_[rank] = std::make_unique<RankFollower>(shards_[rank].get(), spec, rank, times);
  }
  leader_ = std::make_unique<LeaderShard>(std::move(shards_[0]), times);
  Join(options);
}

FollowedStage::~FollowedStage() {
  leader_ = nullptr;
  Wait();
}

void FollowedStage::Wait() {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) {
      thread.join();
    }
  }
  threads_.clear();
}

absl::Status FollowedStage::Ended(uint32_t rank) {
  threads_[rank - 1].join();
  return ended_[rank];
}

void FollowedStage::Join(const FollowedOptions& options) {
  leader_->End("the ranks are joined anew");
  Wait();
  const auto ranks = static_cast<uint32_t>(followers_.size());
  ++epoch_;
  std::vector<RankChannels> channels(ranks);
  for (RankChannels& one : channels) {
    one.epoch = epoch_;
    one.gathers.resize(ranks);
  }
  channels[0].calls.resize(ranks);
  const auto as = [](const auto& change, uint32_t rank, std::unique_ptr<RankChannel> channel) {
    return rank != 0 && change ? change(rank, std::move(channel)) : std::move(channel);
  };
  for (uint32_t a = 0; a < ranks; ++a) {
    for (uint32_t b = a + 1; b < ranks; ++b) {
      ChannelPair pair = options.pair();
      channels[a].gathers[b] = as(options.gathers, a, std::move(pair.one));
      channels[b].gathers[a] = as(options.gathers, b, std::move(pair.other));
    }
  }
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    ChannelPair pair = options.pair();
    channels[0].calls[rank] = std::move(pair.one);
    channels[rank].calls.push_back(as(options.calls, rank, std::move(pair.other)));
  }
  leader_->Join(std::move(channels[0]));
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    threads_.emplace_back([this, rank, own = std::move(channels[rank])]() mutable {
      ended_[rank] = followers_[rank]->Follow(std::move(own));
    });
  }
}

std::vector<std::unique_ptr<Backend>> BackendsOf(size_t ranks) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (size_t rank = 0; rank < ranks; ++rank) {
    auto backend = MakeCpuBackend({.threads = 1});
    EXPECT_TRUE(backend.ok()) << backend.status();
    backends.push_back(*std::move(backend));
  }
  return backends;
}

absl::StatusOr<std::vector<std::unique_ptr<RankShard>>> LoadRanks(
    std::span<const std::unique_ptr<Backend>> backends, std::span<const double> shares,
    const StageSpec& spec, const TensorSource& weights, PackedStore* packed,
    const LoadProgressFn& progress) {
  RankPlace place;
  ASSIGN_OR_RETURN(place.shares, SharesByWeight(shares));
  std::vector<std::unique_ptr<RankShard>> ranks;
  for (; place.rank < shares.size(); ++place.rank) {
    ASSIGN_OR_RETURN(auto shard,
                     backends[place.rank]->LoadRank(spec, place, weights, packed,
                                                    place.rank == 0 ? progress : nullptr));
    ranks.push_back(std::move(shard));
  }
  return ranks;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeFollowedBackend(const FollowedOptions& options) {
  return std::make_unique<FollowedBackend>(options);
}

}  // namespace strata::testing
