#include "worker/ranks/sockets/rank_seat.h"

#include <atomic>
#include <thread>
#include <utility>

#include "common/status.h"
#include "worker/ranks/expected_ranks.h"
#include "worker/ranks/rank_follower.h"
#include "worker/ranks/sockets/rank_sockets.h"

namespace strata {

struct RankSeat::Epoch {
  Epoch(RankShard* shard, const StageSpec& spec, const RankSeatConfig& config)
      : follower(shard, spec, config.rank, config.times) {}

  RankFollower follower;
  std::unique_ptr<RankListener> listener;  // Of the thread; gone once all ranks are there.
  std::atomic<bool> stopped{false};
  std::thread thread;
};

RankSeat::RankSeat(std::unique_ptr<RankShard> shard, const StageSpec& spec, RankSeatConfig config)
    : shard_(std::move(shard)),
      memory_bytes_(shard_->MemoryBytes()),
      spec_(spec),
      config_(std::move(config)),
      epochs_(config_.rank, static_cast<uint32_t>(config_.times.names.size())) {}

RankSeat::~RankSeat() {
  MutexLock lock(&mutex_);
  End(absl::CancelledError("the stage is unloaded"));
}

void RankSeat::End(const absl::Status& why) {
  if (epoch_ != nullptr) {
    epoch_->stopped = true;
    epoch_->follower.Stop(why);
    epoch_->thread.join();
    Watch(nullptr);
    epoch_ = nullptr;
  }
}

void RankSeat::Watch(std::shared_ptr<Epoch> epoch) {
  MutexLock lock(&watch_mutex_);
  watched_ = std::move(epoch);
}

uint64_t RankSeat::call_at_hand() const {
  MutexLock lock(&watch_mutex_);
  return watched_ != nullptr ? watched_->follower.call_at_hand() : 0;
}

void RankSeat::Log(const absl::Status& status) const {
  if (config_.log && !status.ok()) {
    config_.log(status);
  }
}

absl::StatusOr<uint16_t> RankSeat::Join(const RankToJoin& join) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(epochs_.Join(join.epoch, join.rank, join.ranks, join.lower.size()));
  End(absl::CancelledError("the ranks are joined anew"));
  auto epoch = std::make_shared<Epoch>(shard_.get(), spec_, config_);
  ASSIGN_OR_RETURN(epoch->listener, RankListener::Open(config_.host, config_.port, kPortPatience));
  const uint16_t port = epoch->listener->port();
  epoch_ = std::move(epoch);
  Watch(epoch_);
  epoch_->thread = std::thread([this, join, epoch = epoch_.get()] {
    ExpectedRanks expected(join.secret, join.epoch, join.rank, join.ranks);
    const auto stopped = [epoch] { return epoch->stopped.load(); };
    const auto connect = [&]() -> absl::Status {
      const TimePoint deadline = config_.times.clock->Now() + config_.connect;
      for (uint32_t rank = 1; rank < join.rank; ++rank) {
        const RankAddress& address = join.lower[rank - 1];
        ASSIGN_OR_RETURN(auto channel, DialRank(address.host, address.port, expected.HelloTo(rank),
                                                config_.wire, kRankHelloTimeout, stopped));
        expected.Dialled(rank, std::move(channel));
      }
      return epoch->listener->Await(&expected, config_.wire, *config_.times.clock, deadline,
                                    stopped, [this](const absl::Status& refused) { Log(refused); });
    };
    absl::Status status = connect();
    epoch->listener = nullptr;
    if (status.ok()) {
      status = epoch->follower.Follow(expected.Release());
    }
    if (!epoch->stopped) {
      Log(status);
    }
  });
  return port;
}

}  // namespace strata
