// How a rank of several workers reaches the others in one epoch.
#ifndef STRATA_WORKER_RANKS_RANK_CHANNELS_H_
#define STRATA_WORKER_RANKS_RANK_CHANNELS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "worker/collective/rank_channel.h"

namespace strata {

// Channels are of this epoch, and are not used again.
struct RankChannels {
  uint64_t epoch = 0;
  // To each rank, for what is gathered; the rank's own is null.
  std::vector<std::unique_ptr<RankChannel>> gathers;
  // For the calls of the leader, which is the first rank: of the leader to each follower, its own
  // null; of a follower the one to the leader, alone.
  std::vector<std::unique_ptr<RankChannel>> calls;
};

// How long ranks wait for one another, by default.
struct RankPatience {
  nanoseconds call = std::chrono::seconds(10);     // Within a call, one wait for another rank.
  nanoseconds silence = std::chrono::seconds(10);  // A follower, for a sign of its leader.
  nanoseconds connect = std::chrono::seconds(20);  // Until all are connected.
};

struct RankTimes {
  const Clock* clock = nullptr;  // Outlives all.
  // Of one wait for another rank within a call.
  nanoseconds timeout = RankPatience().call;
  // For how long a follower goes on without a sign of the leader between calls.
  nanoseconds silence = RankPatience().silence;
  // Called by a rank that has waited for so many rounds without a byte moved; null: it looks again
  // at once.
  std::function<void(uint64_t idle_rounds)> pause = nullptr;
  std::vector<std::string> names = {};  // Of all ranks, for people.
};

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_RANK_CHANNELS_H_
