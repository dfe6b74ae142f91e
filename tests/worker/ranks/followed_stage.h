// Stages whose ranks are workers of several machines, all of them in this process: a leader, and
// followers on threads of their own.
#ifndef STRATA_TESTS_WORKER_RANKS_FOLLOWED_STAGE_H_
#define STRATA_TESTS_WORKER_RANKS_FOLLOWED_STAGE_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/worker/collective/turned_clock.h"
#include "worker/backend/backend.h"
#include "worker/ranks/leader_shard.h"
#include "worker/ranks/rank_follower.h"

namespace strata::testing {

// The two ends of a channel.
struct ChannelPair {
  std::unique_ptr<RankChannel> one;
  std::unique_ptr<RankChannel> other;
};
// In memory, holding so many bytes at a time; and of a pair of sockets.
ChannelPair MemoryPair(size_t capacity);
ChannelPair SocketPair();

struct FollowedOptions {
  std::vector<double> shares;  // Of each rank; the first is the leader's.
  std::function<ChannelPair()> pair = SocketPair;
  // What a follower's end becomes, by rank: of the leader's calls, and of what is gathered with
  // each other rank. Null: as it is.
  std::function<std::unique_ptr<RankChannel>(uint32_t, std::unique_ptr<RankChannel>)> calls =
      nullptr;
  std::function<std::unique_ptr<RankChannel>(uint32_t, std::unique_ptr<RankChannel>)> gathers =
      nullptr;
  const Clock* clock = nullptr;  // Null: one that stands still.
  milliseconds timeout = milliseconds(60'000);
  milliseconds silence = milliseconds(60'000);
};

// All ranks of one stage. Calls are the leader's.
class FollowedStage {
 public:
  // `ranks` by rank; all outlive it, and so does the options' clock.
  FollowedStage(std::vector<std::unique_ptr<RankShard>> ranks, const StageSpec& spec,
                const FollowedOptions& options);
  ~FollowedStage();  // Ends the epoch and waits for all.

  LeaderShard* leader() { return &*leader_; }
  RankFollower* follower(uint32_t rank) { return &*followers_[rank]; }
  // A new epoch, with other ends of followers from now on.
  void Join(const FollowedOptions& options);
  // What a follower's loop ended with; waits for that.
  absl::Status Ended(uint32_t rank);

 private:
  void Wait();

  const TurnedClock standing_;
  uint64_t epoch_ = 0;
  std::vector<std::unique_ptr<RankShard>> shards_;  // Of followers.
  std::unique_ptr<LeaderShard> leader_;
  std::vector<std::unique_ptr<RankFollower>> followers_;
  std::vector<std::thread> threads_;
  std::vector<absl::Status> ended_;
};

// Each rank loads with a backend of its own, as each worker does, of one thread.
absl::StatusOr<std::unique_ptr<Backend>> MakeFollowedBackend(const FollowedOptions& options);
// The ranks of a stage, by such backends. `progress` is of the first.
absl::StatusOr<std::vector<std::unique_ptr<RankShard>>> LoadRanks(
    std::span<const std::unique_ptr<Backend>> backends, std::span<const double> shares,
    const StageSpec& spec, const TensorSource& weights, PackedStore* packed,
    const LoadProgressFn& progress);
std::vector<std::unique_ptr<Backend>> BackendsOf(size_t ranks);

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_RANKS_FOLLOWED_STAGE_H_
