// A stage that ranks of this process compute together.
#ifndef STRATA_WORKER_BACKEND_RANKED_RANKED_SHARD_H_
#define STRATA_WORKER_BACKEND_RANKED_RANKED_SHARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/rank_shard.h"
#include "worker/backend/stage.h"
#include "worker/collective/collective.h"

namespace strata {

struct RankedShardOptions {
  // Joins the ranks: an end for each of them. Called again after an error.
  std::function<absl::StatusOr<std::vector<std::unique_ptr<Collective>>>()> join;
  // Whether ranks' calls return before their work is done.
  bool behind = false;
  // Whether all threads have a core each: else none spins.
  bool own_cores = false;
  // What is counted of ranks that take so many bytes each; null: their sum.
  std::function<uint64_t(std::span<const uint64_t> bytes)> count = nullptr;
  // Whether an error is of what joins the ranks, and no batch its cause: it is RANKS_BROKEN then.
  // Null: none is.
  std::function<bool(const absl::Status&)> is_of_join = nullptr;
};

// A call is made of all ranks at once: the first on the calling thread, the others on threads of
// this. They wait for one another within it. One that fails ends the others' waits, and the next
// Begin joins them anew.
class RankedShard : public Shard {
 public:
  // `ranks` are all of a stage's.
  static absl::StatusOr<std::unique_ptr<RankedShard>> Create(
      std::vector<std::unique_ptr<RankShard>> ranks, RankedShardOptions options);

  // Joins the ranks anew where they are not joined.
  absl::Status BeginEpoch(uint64_t epoch) override;
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
  // Of all ranks, as they are counted.
  uint64_t MemoryBytes() const override;
  uint64_t StepReadBytes() const override;

 private:
  RankedShard(std::vector<std::unique_ptr<RankShard>> ranks, RankedShardOptions options);
  // Joins all ranks in a new epoch.
  absl::Status Connect();
  absl::Status ConnectAgain();
  // call(shard) of each rank at once.
  absl::Status OnAll(const std::function<absl::Status(RankShard*)>& call);
  // The same of a call that reads the residual stream, which all ranks have before it.
  absl::Status OnAllWithResidual(const std::function<absl::Status(RankShard*)>& call);
  // call(shard) of the first rank, which changes the residual stream.
  absl::Status OnFirst(const std::function<absl::Status(RankShard*)>& call);

  const RankedShardOptions options_;
  uint64_t epoch_ = 0;
  bool broken_ = false;  // A rank failed: they are to be joined anew.
  bool shared_ = true;   // Whether all ranks have the residual stream.
  std::vector<std::unique_ptr<RankShard>> shards_;
  cpu::ThreadPool callers_;  // A thread for each rank.
  std::vector<absl::Status> statuses_;
};

}  // namespace strata

#endif  // STRATA_WORKER_BACKEND_RANKED_RANKED_SHARD_H_
