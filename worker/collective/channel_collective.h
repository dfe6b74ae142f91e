// Ranks that reach each other by channels of bytes, as those of several machines.
#ifndef STRATA_WORKER_COLLECTIVE_CHANNEL_COLLECTIVE_H_
#define STRATA_WORKER_COLLECTIVE_CHANNEL_COLLECTIVE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "worker/collective/collective.h"
#include "worker/collective/rank_channel.h"

namespace strata {

struct ChannelCollectiveOptions {
  nanoseconds timeout = milliseconds(10'000);  // Of one call.
  const Clock* clock = nullptr;                // Outlives the collective.
  // Called by a rank that has waited for so many rounds without a byte moved; null: it looks again
  // at once.
  std::function<void(uint64_t idle_rounds)> pause = nullptr;
  std::vector<std::string> names = {};  // Of ranks, for people; none, or one a rank.
};

// The rank's end, with a channel to each other rank; its own is null. Every call sends each of them
// a frame (rank_frame.h) and takes one from each. What a rank gives may change as soon as its call
// has returned. Channels are the collective's of one epoch: they
// are not used again.
std::unique_ptr<Collective> MakeChannelCollective(
    uint32_t rank, std::vector<std::unique_ptr<RankChannel>> channels,
    const ChannelCollectiveOptions& options);

}  // namespace strata

#endif  // STRATA_WORKER_COLLECTIVE_CHANNEL_COLLECTIVE_H_
