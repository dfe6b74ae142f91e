// A stage whose first rank is here, and whose others follow.
#ifndef STRATA_WORKER_RANKS_LEADER_SHARD_H_
#define STRATA_WORKER_RANKS_LEADER_SHARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "worker/backend/rank_shard.h"
#include "worker/ranks/noted_waits.h"
#include "worker/ranks/page_parts.h"
#include "worker/ranks/rank_call.h"
#include "worker/ranks/rank_channels.h"

namespace strata {

// Every call goes to all followers as a frame, then is made of the own rank; a call that the own
// rank would refuse is refused before. What followers answer is in what is gathered within calls. A
// rank that fails, is late or is gone is UNAVAILABLE (kRanksBroken), which says what and whose, and
// so are all calls after it until ranks are joined anew.
class LeaderShard : public Shard {
 public:
  // Joins the others in an epoch of the ranks; may wait.
  using JoinFn = std::function<absl::StatusOr<RankChannels>(uint64_t epoch)>;

  // `own` is the stage's first rank; `times` has a name for each. Without `join` ranks are joined
  // by Join alone.
  LeaderShard(std::unique_ptr<RankShard> own, RankTimes times, JoinFn join = nullptr);
  ~LeaderShard() override;  // Ends the epoch.

  // Begins an epoch, with all followers there; before the first call, and after an error. The one
  // before ends.
  void Join(RankChannels channels);
  // Ends the epoch: followers stop.
  void End(const std::string& why);
  // Tells followers that this leader is there. Any thread; more often than their silence.
  void Beat();

  // Joins ranks that are not joined, after which KV is lost; where they are, they stay so.
  absl::Status BeginEpoch(uint64_t epoch) override;
  bool TakeKvLost() override { return std::exchange(kv_lost_, false); }
  bool WaitsForWorkers() const override { return true; }
  bool IsHeldUp() const override { return waits_.waits(); }

  absl::Status Begin(const Batch& batch) override;
  absl::Status Embed() override;
  absl::Status EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) override;
  absl::Status SetResidual(std::span<const float> values) override;
  absl::Status Attention(uint32_t layer) override;
  absl::Status AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) override;
  absl::Status Mlp(uint32_t layer) override;
  absl::Status ReadResidual(std::span<float> out) override;
  absl::Status Head(std::span<const uint32_t> rows) override;
  absl::Status ReadLogits(std::span<float> out) override;
  absl::Status CopyPage(uint32_t group, PageId from, PageId to) override;
  // A page is what one rank alone would have.
  uint64_t PageBytes(uint32_t group) const override;
  absl::Status ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) override;
  absl::Status WritePage(uint32_t group, PageId page, std::span<const uint8_t> in) override;
  absl::Status ResizeKv(std::span<const uint64_t> pages) override;
  // Of the own rank alone.
  uint64_t MemoryBytes() const override { return own_->MemoryBytes(); }
  uint64_t StepReadBytes() const override { return own_->StepReadBytes(); }

 private:
  absl::Status Broken();
  // All ranks hear `why`; what is answered from now on.
  absl::Status Break(const absl::Status& why);
  void SetBroken(const absl::Status& why) STRATA_REQUIRES(mutex_);
  // The same of a rank that takes no more calls, which may have said why.
  absl::Status BreakAsHeard(const absl::Status& why);
  // The error, by that rank's node.
  absl::Status Of(uint32_t rank, const absl::Status& error) const;
  // The call as it goes to each rank.
  absl::Status Send(const std::function<RankCall(uint32_t rank)>& call);
  absl::Status Send(const RankCall& call) {
    return Send([&](uint32_t) { return call; });
  }
  absl::Status SendFrame(const std::function<RankCall(uint32_t rank)>& call)
      STRATA_REQUIRES(mutex_);
  // Sends the call, then makes it of the own rank. All ranks have the residual stream before.
  absl::Status OnAll(const RankCall& call, const std::function<absl::Status()>& own);
  absl::Status OnAllWithResidual(const RankCall& call, const std::function<absl::Status()>& own);
  // The first of what the ranks answered that is no success.
  absl::Status Answered(const absl::Status& own);
  absl::Status ResizeAll(std::span<const uint64_t> pages);
  PageParts PartsOf(uint32_t group) const { return PageParts(*own_, group, ranks_); }

  NotedWaits waits_;
  const std::unique_ptr<RankShard> own_;
  const RankTimes times_;
  const JoinFn join_;
  const uint32_t ranks_;
  uint32_t head_rows_ = 0;
  bool shared_ = true;          // Whether all ranks have the residual stream.
  bool kv_lost_ = false;        // Ranks were joined since it was asked.
  std::vector<uint8_t> parts_;  // Of a page, of all ranks.

  Mutex mutex_;  // Of what is sent, and whether it is of any use.
  std::vector<std::unique_ptr<RankChannel>> calls_ STRATA_GUARDED_BY(mutex_);  // By rank.
  uint64_t epoch_ STRATA_GUARDED_BY(mutex_) = 0;
  uint64_t number_ STRATA_GUARDED_BY(mutex_) = 0;                       // Of the last frame.
  std::vector<std::vector<uint8_t>> frames_ STRATA_GUARDED_BY(mutex_);  // By rank.
  absl::Status broken_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_LEADER_SHARD_H_
