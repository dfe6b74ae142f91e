// A loaded stage on MLX.
#ifndef STRATA_WORKER_BACKEND_MLX_MLX_SHARD_H_
#define STRATA_WORKER_BACKEND_MLX_MLX_SHARD_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mlx/array.h"
#include "worker/backend/backend.h"
#include "worker/backend/mlx/array_weights.h"
#include "worker/backend/mlx/attention.h"
#include "worker/backend/mlx/kv_arrays.h"
#include "worker/backend/mlx/layer_ops.h"
#include "worker/backend/shard_calls.h"

namespace strata::mlx {

// What shards on a device have in common.
struct ShardDevice {
  RowBlocks blocks;
  uint64_t shared_bytes = 0;  // DeviceFacts::shared_bytes.
};

// Calls extend a lazy graph. Behind each layer it is begun, and goes on being computed while the
// rest is made; it is waited for when something of it is read, or earlier where its arrays would
// take more than kMlxGraphBytes. What is lazy belongs to the thread that made it: a step is by one
// thread, and leaves nothing lazy once something was read.
class MlxShard : public Shard {
 public:
  // `spec` was found supported.
  static absl::StatusOr<std::unique_ptr<MlxShard>> Create(const StageSpec& spec,
                                                          const TensorSource& source,
                                                          PackedStore* packed,
                                                          const LoadProgressFn& progress,
                                                          const ShardDevice& device);

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
  uint64_t PageBytes(uint32_t group) const override { return KvArrays::PageBytes(spec_, group); }
  absl::Status ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) override;
  absl::Status WritePage(uint32_t group, PageId page, std::span<const uint8_t> in) override;
  absl::Status ResizeKv(std::span<const uint64_t> pages) override;
  uint64_t MemoryBytes() const override;
  uint64_t StepReadBytes() const override { return arrays_.step_read_bytes; }

 private:
  // A branch's queries, keys and values as they are projected.
  struct Projected {
    std::optional<::mlx::core::array> queries;  // [rows, heads, width of a key]
    ::mlx::core::array keys;                    // [rows, KV heads * width of a key]
    std::optional<::mlx::core::array> values;   // None with latent vectors.
  };

  MlxShard(const StageSpec& spec, const ShardDevice& device);
  const LayerSpec& layer(uint32_t index) const { return spec_.model.layers[index]; }
  const LayerArrays& arrays(uint32_t index) const {
    return arrays_.layers[index - spec_.first_layer];
  }
  // The position of each row, by its item.
  std::vector<uint32_t> Positions() const;
  // Forgets what follows from the batch's items.
  void DropPlan();
  // Of a layer's KV.
  const ::mlx::core::array& SlotsOf(uint32_t layer);
  const std::vector<SpanArrays>& SpansOf(uint32_t layer);
  // Null where the layer does not turn. `neighbours`: of which numbers pairs are.
  const Rotation* RotationOf(uint32_t layer, bool neighbours);
  Projected Project(uint32_t layer, bool queries);
  Projected ProjectHeads(uint32_t layer, const ::mlx::core::array& inputs, bool queries);
  absl::StatusOr<::mlx::core::array> AttendRows(uint32_t layer, const ::mlx::core::array& queries);
  // The end of a branch: what it gave is normed, multiplied and added.
  void AddBranch(const LayerSpec& layer, const ::mlx::core::array& branch,
                 const std::optional<::mlx::core::array>& after);
  absl::Status FinishAttention(uint32_t layer, const ::mlx::core::array& queries);
  // Makes these the batch's only rows.
  void KeepRows(std::span<const uint32_t> rows);

  // Counts what the graph will take, and evaluates it where that is too much.
  absl::Status Account(uint64_t bytes);
  // Has the residual stream computed while the rest of the graph is made.
  absl::Status Start();
  // Evaluates the graph: the residual stream, KV, and `more`.
  absl::Status Evaluate(std::vector<::mlx::core::array> more);
  // What an evaluation gave; after one that failed nothing of the step is left.
  absl::Status RecoverUnless(absl::Status status);
  absl::Status Copy(const ::mlx::core::array& from, std::span<float> out);

  StageSpec spec_;  // Only ResizeKv changes it: kv_pages.
  const RowBlocks blocks_;
  const uint64_t shared_bytes_;
  const ShardCalls calls_;
  StageArrays arrays_;
  KvArrays kv_;
  std::vector<float> rotary_;  // As shipped.

  Batch batch_;
  std::vector<BatchItem> kept_;                 // What KeepRows made of the batch's items.
  std::optional<::mlx::core::array> residual_;  // [rows, hidden]; none where the batch has no rows.
  std::optional<::mlx::core::array> logits_;
  uint32_t head_rows_ = 0;
  uint64_t graph_bytes_ = 0;
  // Of the batch, made when a layer first needs them.
  std::map<KvShape, ::mlx::core::array> slots_;  // int32 [rows * KV heads]
  std::map<KvShape, std::vector<SpanArrays>> spans_;
  // By where the layer's table begins, and whether neighbours turn.
  std::map<std::pair<uint64_t, bool>, Rotation> rotations_;
};

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_MLX_SHARD_H_
