// A rank's place at a follower: what is loaded there, and the epochs in which it follows.
#ifndef STRATA_WORKER_RANKS_SOCKETS_RANK_SEAT_H_
#define STRATA_WORKER_RANKS_SOCKETS_RANK_SEAT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "worker/backend/rank_shard.h"
#include "worker/ranks/rank_channels.h"
#include "worker/ranks/seat_epochs.h"
#include "worker/ranks/sockets/join_followers.h"

namespace strata {

struct RankSeatConfig {
  uint32_t rank = 1;                             // Not the first.
  RankTimes times;                               // With a name for each rank.
  nanoseconds connect = RankPatience().connect;  // For all ranks, once it is asked to join.
  std::string host;                              // Where it listens for others; empty: everywhere.
  uint16_t port = 0;  // 0: at any that is free. One that another seat listens at is waited for.
  RankWire wire = RankWire::kPlain;
  // What an epoch ended with, and connections that were refused; may be null. Any thread.
  std::function<void(const absl::Status&)> log = nullptr;
};

class RankSeat {
 public:
  // How long a port is waited for at which another seat listens: less than who asks waits.
  static constexpr milliseconds kPortPatience{2'000};

  RankSeat(std::unique_ptr<RankShard> shard, const StageSpec& spec, RankSeatConfig config);
  ~RankSeat();  // Ends the epoch.

  // Ends the epoch before, and begins one: the port at which others connect. It then follows on a
  // thread of its own until the epoch ends. INVALID_ARGUMENT (RANK_JOIN): it is asked of another
  // rank, or without the addresses of the lower ones; FAILED_PRECONDITION (RANK_JOIN): of an epoch
  // that is not above all before it; UNAVAILABLE (RANK_LISTEN). Any thread.
  absl::StatusOr<uint16_t> Join(const RankToJoin& join);
  // RankFollower::call_at_hand. Any thread, and never waits for a call.
  uint64_t call_at_hand() const;
  // That the rank takes.
  uint64_t memory_bytes() const { return memory_bytes_; }

 private:
  struct Epoch;
  void End(const absl::Status& why) STRATA_REQUIRES(mutex_);
  void Watch(std::shared_ptr<Epoch> epoch);
  void Log(const absl::Status& status) const;

  const std::unique_ptr<RankShard> shard_;
  const uint64_t memory_bytes_;
  const StageSpec spec_;
  const RankSeatConfig config_;
  Mutex mutex_;
  SeatEpochs epochs_ STRATA_GUARDED_BY(mutex_);
  std::shared_ptr<Epoch> epoch_ STRATA_GUARDED_BY(mutex_);  // Null: none.
  // The same, and not held while an epoch ends.
  mutable Mutex watch_mutex_;
  std::shared_ptr<Epoch> watched_ STRATA_GUARDED_BY(watch_mutex_);
};

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_SOCKETS_RANK_SEAT_H_
