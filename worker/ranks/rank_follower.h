// A rank that makes the calls of another worker.
#ifndef STRATA_WORKER_RANKS_RANK_FOLLOWER_H_
#define STRATA_WORKER_RANKS_RANK_FOLLOWER_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "worker/backend/rank_shard.h"
#include "worker/ranks/noted_waits.h"
#include "worker/ranks/rank_call.h"
#include "worker/ranks/rank_channels.h"

namespace strata {

// Takes frames of the leader (rank_call.h) and makes the same calls of its shard.
class RankFollower {
 public:
  // `shard` is of the stage `spec` and outlives this; `rank` is not the first. `times` has a name
  // for each rank.
  RankFollower(RankShard* shard, const StageSpec& spec, uint32_t rank, RankTimes times);

  // One epoch, to its end; ok: the leader ended it. After an error all ranks hear of it, and the
  // shard's KV is undefined: DATA_LOSS (kRankFrame), DEADLINE_EXCEEDED (kCollectiveTimeout) for a
  // leader that is silent, UNAVAILABLE (kRanksBroken) for one that is gone, or what a call of the
  // shard answered. One thread at a time.
  absl::Status Follow(RankChannels channels);
  // Ends Follow by `why`, at once and from now on. Any thread.
  void Stop(const absl::Status& why);
  // Another number for each call that is computed; 0: none is, or it waits for another rank. Any
  // thread.
  uint64_t call_at_hand() const { return waits_.waits() ? 0 : at_hand_.load(); }

 private:
  // Reads the next frame into held_.
  absl::Status Take(RankChannel* leader, uint64_t epoch);
  absl::Status Fill(RankChannel* leader, std::span<uint8_t> out);
  absl::Status Make(const RankCall& call);
  absl::Status MakeOfBatch(const RankCall& call);
  absl::Status ReadLogits();
  absl::Status Answer(const absl::Status& own);
  absl::Status ReadPage(const RankCall& call);
  absl::Status Stopped() {
    MutexLock lock(&mutex_);
    return stopped_;
  }

  RankShard& shard_;
  const uint32_t rank_;
  const size_t vocab_;
  const RankCallLimits limits_;
  NotedWaits waits_;
  const RankTimes times_;
  const uint32_t ranks_;
  std::atomic<uint64_t> at_hand_{0};
  uint64_t number_ = 0;  // Of the last frame.
  bool begun_ = false;   // There is a batch, of this epoch.
  uint32_t head_rows_ = 0;
  HeldRankCall held_;
  std::vector<uint8_t> bytes_;  // Behind a head.
  std::vector<uint8_t> parts_;  // Of a page, of all ranks.
  std::vector<float> logits_;   // Of which the rank's columns count.

  Mutex mutex_;
  bool connected_ STRATA_GUARDED_BY(mutex_) = false;
  absl::Status stopped_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_RANK_FOLLOWER_H_
