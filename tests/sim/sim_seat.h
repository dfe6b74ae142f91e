// A rank that follows another simulated worker: which epochs it joins is for SeatEpochs, and what
// it does in one for RankFollower, as they ship. worker/ranks/sockets/rank_seat.h has a thread and
// sockets besides.
#ifndef STRATA_TESTS_SIM_SIM_SEAT_H_
#define STRATA_TESTS_SIM_SIM_SEAT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "strata/v1/membership.pb.h"
#include "tests/sim/cluster.h"
#include "tests/sim/hash_rank.h"
#include "tests/sim/rank_wires.h"
#include "worker/ranks/rank_channels.h"
#include "worker/ranks/rank_follower.h"
#include "worker/ranks/seat_epochs.h"

namespace strata::sim {

class SimSeat {
 public:
  // On the worker of `machine`.
  SimSeat(Cluster* cluster, Machine machine, const v1::Load& load, const StageSpec& spec);
  ~SimSeat();  // Ends the epoch.
  SimSeat(const SimSeat&) = delete;
  SimSeat& operator=(const SimSeat&) = delete;

  // Ends the epoch before, and begins one. Errors: SeatEpochs's.
  absl::StatusOr<std::shared_ptr<const RankOwner>> Join(const RankAsked& asked);
  // All ranks of the epoch are connected.
  void Connected(RankChannels channels);
  // Of the newest epoch; null before.
  const std::shared_ptr<RankOwner>& owner() const { return owner_; }

  void FailNext() { shard_.FailNext(); }

 private:
  void End(const absl::Status& why);

  Cluster* const cluster_;
  const Machine machine_;
  const v1::Load load_;
  const StageSpec spec_;
  HashRank shard_;
  SeatEpochs epochs_;
  std::shared_ptr<RankOwner> owner_;
  uint64_t epoch_ = 0;
  std::unique_ptr<RankFollower> follower_;
  bool follows_ = false;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_SEAT_H_
