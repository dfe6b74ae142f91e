// What a stage of a simulated worker computes on: a device of its own, or the first of several
// ranks, whose others follow on other workers. That one is the leader that ships
// (worker/ranks/leader_shard.h), joined over the simulated network.
#ifndef STRATA_TESTS_SIM_STAGE_DEVICE_H_
#define STRATA_TESTS_SIM_STAGE_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "strata/v1/membership.pb.h"
#include "tests/sim/cluster.h"
#include "tests/sim/hash_rank.h"
#include "tests/sim/rank_wires.h"
#include "tests/worker/runner/hash_shard.h"
#include "worker/ranks/leader_shard.h"

namespace strata::sim {

// How often a leader says that it is there; followers end their epoch without it.
inline constexpr nanoseconds kRankSilence = milliseconds(1000);
inline constexpr nanoseconds kRankBeat = kRankSilence / 10;

// Of the ranks of a load: shares and place, and how long each waits, as worker/service/rank_parts
// has it. `pause` is called of a fiber.
RankPlace RankPlaceOf(const v1::Load& load);
RankTimes RankTimesOf(const v1::Load& load, const Clock* clock,
                      std::function<void(uint64_t)> pause);
// Lets others go on, and does not come back while its worker is stopped.
void PauseRank(const Cluster& cluster, const RankOwner& owner);

class StageDevice {
 public:
  // On the worker of `machine`.
  StageDevice(Cluster* cluster, Machine machine, const v1::Load& load, const StageSpec& spec);
  ~StageDevice();
  StageDevice(const StageDevice&) = delete;
  StageDevice& operator=(const StageDevice&) = delete;

  Shard* shard();
  bool has_ranks() const { return rank_ != nullptr; }
  // Null where there are no ranks.
  const std::shared_ptr<RankOwner>& owner() const { return owner_; }

  // Runs what calls the shard, then `done`: at once; of ranks, once all have come, later.
  void Do(const std::function<void()>& work, const std::function<void()>& done);
  // Something runs.
  bool busy() const { return busy_; }
  // Ends what runs, whose `done` does not follow. Nothing runs after it.
  void End();
  // Tells followers that it is there.
  void Beat();

  // Faults.
  void SpoilLayer(uint32_t layer) { alone_->SpoilLayer(layer); }
  void FailAtPoison();
  void FailNextRead();
  void PoisonToken(uint32_t token_id, uint32_t layer);

 private:
  // Of a fiber.
  absl::StatusOr<RankChannels> Join(uint64_t epoch);
  absl::StatusOr<std::shared_ptr<const RankOwner>> Ask(uint64_t epoch, uint32_t rank);
  void Pause() const { PauseRank(*cluster_, *owner_); }

  Cluster* const cluster_;
  const Machine machine_;
  const v1::Load load_;
  std::unique_ptr<strata::testing::HashShard> alone_;
  std::shared_ptr<RankOwner> owner_;
  HashRank* rank_ = nullptr;  // The leader's.
  std::unique_ptr<LeaderShard> leader_;
  bool joined_before_ = false;
  bool busy_ = false;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_STAGE_DEVICE_H_
