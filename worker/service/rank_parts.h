// A stage's rank on this worker, made of what was loaded: the leader's shard, or a follower's seat.
#ifndef STRATA_WORKER_SERVICE_RANK_PARTS_H_
#define STRATA_WORKER_SERVICE_RANK_PARTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "strata/v1/membership.pb.h"
#include "worker/backend/rank_shard.h"
#include "worker/ranks/sockets/join_followers.h"
#include "worker/ranks/sockets/rank_seat.h"

namespace strata {

// A follower's worker, as its leader knows it.
struct RankPeer {
  std::string node;
  uint64_t incarnation = 0;
  std::string address;  // host:port, as it is dialled.
  uint64_t loaded_epoch = 0;
};

// What ranks need of the process.
struct RankSurroundings {
  std::string host = {};  // Where followers listen for other ranks.
  uint16_t port = 0;      // 0: at any that is free.
  RankPatience patience = {};
  RankWire wire = RankWire::kPlain;
  // Asks a follower's worker to join (AskToJoin). Any thread.
  std::function<absl::StatusOr<RankAddress>(const RankPeer& peer, uint64_t deployment,
                                            const RankToJoin& join)>
      ask = nullptr;
};

// Of a checked Load with ranks. The first rank joins the others when an epoch begins, and tells
// them ten times within their silence that it is there.
std::unique_ptr<Shard> MakeLeader(const v1::Load& load, std::unique_ptr<RankShard> rank,
                                  const RankSurroundings& around, const Clock* clock);
// Another rank.
std::shared_ptr<RankSeat> MakeSeat(const v1::Load& load, std::unique_ptr<RankShard> rank,
                                   const StageSpec& spec, const RankSurroundings& around,
                                   const Clock* clock);

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_RANK_PARTS_H_
