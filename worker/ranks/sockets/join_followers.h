// How a leader joins those who follow it in a new epoch.
#ifndef STRATA_WORKER_RANKS_SOCKETS_JOIN_FOLLOWERS_H_
#define STRATA_WORKER_RANKS_SOCKETS_JOIN_FOLLOWERS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "worker/ranks/rank_channels.h"
#include "worker/ranks/rank_hello.h"
#include "worker/ranks/sockets/rank_wire.h"

namespace strata {

// Where a rank listens.
struct RankAddress {
  std::string host;
  uint16_t port = 0;
  std::string node = {};  // Its worker's, for errors; may be empty.
};

// What a follower is asked.
struct RankToJoin {
  uint64_t epoch = 0;
  uint32_t rank = 0;   // Its own, from 1.
  uint32_t ranks = 0;  // Of the stage.
  RankSecret secret = {};
  std::vector<RankAddress> lower = {};  // Of ranks 1 to rank - 1.
};

// Asks the follower, whose seat begins the epoch and says where it listens.
using AskToJoinFn = std::function<absl::StatusOr<RankAddress>(const RankToJoin&)>;

// Asks each follower in turn, then connects to each, which may take `timeout` for each connection.
// Errors: what was asked answered, or DialRank's. Followers that were asked then wait in vain, for
// as long as they do.
absl::StatusOr<RankChannels> JoinFollowers(const RankSecret& secret, uint64_t epoch, uint32_t ranks,
                                           RankWire wire, const AskToJoinFn& ask,
                                           milliseconds timeout);

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_SOCKETS_JOIN_FOLLOWERS_H_
