// A loaded stage on the CPU.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_CPU_SHARD_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_CPU_SHARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/rank_outputs.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/shard/attention_branch.h"
#include "worker/backend/cpu/shard/gated_mlp.h"
#include "worker/backend/cpu/shard/mixture_mlp.h"
#include "worker/backend/cpu/shard/products.h"
#include "worker/backend/cpu/shard/rank_link.h"
#include "worker/backend/cpu/shard/residual_stream.h"
#include "worker/backend/cpu/shard/stage_state.h"
#include "worker/backend/cpu/threads/page_mover.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/cpu/weights/cpu_weights.h"
#include "worker/backend/rank_shard.h"
#include "worker/backend/shard_calls.h"

namespace strata::cpu {

// With which threads a shard is loaded, and to where.
struct ShardLoading {
  ThreadPool* threads = nullptr;
  const WeightPlacer* placer = nullptr;  // nullptr: anywhere.
  // Whether what the store has may be mapped, and moved by one thread later: to that one's node.
  bool may_map = false;
  PageMover::DoneFn moved = nullptr;
};

// What one rank of a stage computes, on the calling thread and the pool. Every call has done its
// work when it returns, but for Head, whose product is computed by ReadLogits where its result
// goes. Where there are other ranks, all are called alike, each on a thread of its own, as they
// wait for one another. But Embed, EmbedInputs and SetResidual are the first rank's, which
// ShareResidual hands to all; ReadResidual may be any one's; and ReadLogits writes the rank's
// columns alone.
class CpuShard : public RankShard {
 public:
  // `spec` was found supported. Computes with `pool`.
  static absl::StatusOr<std::unique_ptr<CpuShard>> Create(
      const StageSpec& spec, const TensorSource& source, PackedStore* packed,
      const LoadProgressFn& progress, const Kernels* kernels, const ShardLoading& how,
      std::shared_ptr<ThreadPool> pool);
  // The same of all ranks of the stage, whose outputs are `ranks` (SplitOutputs), with a pool each.
  // Their links are yet to be connected.
  static absl::StatusOr<std::vector<std::unique_ptr<CpuShard>>> CreateRanks(
      const StageSpec& spec, const std::vector<RankOutputs>& ranks, const TensorSource& source,
      PackedStore* packed, const LoadProgressFn& progress, const Kernels* kernels,
      const ShardLoading& how, std::span<const std::shared_ptr<ThreadPool>> pools);
  // And of one of them alone.
  static absl::StatusOr<std::unique_ptr<CpuShard>> CreateRank(
      const StageSpec& spec, const RankPlace& place, const TensorSource& source,
      PackedStore* packed, const LoadProgressFn& progress, const Kernels* kernels,
      const ShardLoading& how, std::shared_ptr<ThreadPool> pool);

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
  uint64_t PageBytes(uint32_t group) const override { return stage_.kv.page_bytes(group); }
  absl::Status ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) override;
  absl::Status WritePage(uint32_t group, PageId page, std::span<const uint8_t> in) override;
  absl::Status ResizeKv(std::span<const uint64_t> pages) override;
  uint64_t MemoryBytes() const override;
  uint64_t StepReadBytes() const override { return stage_.weights.StepReadBytes(); }

  void Connect(std::unique_ptr<Collective> collective, uint64_t epoch) override {
    stage_.link->Connect(std::move(collective), epoch);
  }
  void Abort(const absl::Status& why) override { stage_.link->Abort(why); }
  absl::Status ShareResidual() override;
  absl::Status GatherLogits(std::span<float> logits) override;
  absl::Status GatherBytes(uint8_t* row, std::span<const ByteColumns> columns) override {
    return stage_.link->GatherBytes(row, columns);
  }
  void ForPageParts(uint32_t group,
                    const std::function<void(size_t, size_t, size_t, size_t)>& copy) const override;
  const ShardCalls& calls() const override { return calls_; }
  const Batch& batch() const override { return stage_.batch; }

 private:
  // The ranks [first, first + pools.size()), with a pool each.
  static absl::StatusOr<std::vector<std::unique_ptr<CpuShard>>> CreateSome(
      const StageSpec& spec, const std::vector<RankOutputs>& ranks, uint32_t first,
      const TensorSource& source, PackedStore* packed, const LoadProgressFn& progress,
      const Kernels* kernels, const ShardLoading& how,
      std::span<const std::shared_ptr<ThreadPool>> pools);
  CpuShard(const StageSpec& spec, const Kernels* kernels, std::shared_ptr<ThreadPool> pool,
           std::unique_ptr<RankLink> link);
  absl::Status Allocate();

  // Makes these the batch's only rows.
  void KeepRows(std::span<const uint32_t> rows);

  StageState stage_;
  const ShardCalls calls_;
  std::unique_ptr<PageMover> mover_;  // Of the stage's weights; null where nothing is mapped.
  // The steps, each with what it computes in.
  Products products_;
  ResidualStream residual_;
  AttentionBranch attention_;
  GatedMlp mlp_;
  MixtureMlp mixture_;
  std::vector<BatchItem> kept_;  // What KeepRows made of the batch's items.
  uint32_t head_rows_ = 0;
  // Of what is gathered on its way, where other ranks are elsewhere: their collective has it.
  uint64_t gathered_bytes_ = 0;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_CPU_SHARD_H_
