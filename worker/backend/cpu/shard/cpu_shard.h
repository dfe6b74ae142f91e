// A loaded stage on the CPU.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_CPU_SHARD_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_CPU_SHARD_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/shard/expert_rows.h"
#include "worker/backend/cpu/shard/kv_cache.h"
#include "worker/backend/cpu/threads/aligned_buffer.h"
#include "worker/backend/cpu/threads/page_mover.h"
#include "worker/backend/cpu/threads/thread_pool.h"
#include "worker/backend/cpu/weights/cpu_weights.h"

namespace strata::cpu {

// The most items of one row each whose attention may be divided among threads by spans, where a
// layer attends by `parts` of its heads: more of them are enough to divide by.
constexpr size_t MostItemsBySpans(uint32_t threads, size_t parts) {
  return threads == 1 ? 0 : (size_t{4} * threads - 1) / parts;
}

// Sizes of a stage's buffers, in floats.
struct ScratchSizes {
  ScratchSizes(const StageSpec& spec, const Kernels& kernels, uint32_t threads);
  uint64_t Bytes() const;
  // Of all rows, and behind them of each thread but the first its own.
  size_t Normed() const { return (rows + (threads - 1) * own_rows) * hidden; }
  size_t Int8() const { return rows * int8 + (threads - 1) * own_rows * own_int8; }
  size_t hidden = 0;   // A row of the residual stream.
  size_t queries = 0;  // A row of all query heads, of the layer with the most, or of their values.
  size_t keys = 0;     // A row of all KV heads, or of what latent layers keep.
  size_t values = 0;   // The same of values.
  // With latent vectors: rows of the vector that queries come out of, of all heads' queries with
  // the keys' up-projection absorbed, so that they are scored with what is kept, and of what they
  // sum.
  size_t query_rank = 0;
  size_t absorbed = 0;
  size_t summed = 0;
  size_t ffn = 0;
  // Of each row: the inputs of a matrix, or of all experts of the row, as floats and quantized
  // (bytes); and what is between the matrices of the MLP, likewise.
  size_t packed = 0;
  size_t int8 = 0;
  // Bytes of a quantized row that a thread packs for itself, which is of one matrix and not of the
  // MLP's last; and of gate times up, which is.
  size_t own_int8 = 0;
  size_t gated = 0;
  size_t within = 0;
  size_t attend = 0;   // Of one thread.
  size_t partial = 0;  // Spans that are computed apart, of MostItemsBySpans.
  size_t rows = 0;
  size_t own_rows = 0;    // The most that each thread packs for itself, at most kOwnRows.
  size_t gated_rows = 0;  // The most of one block.
  size_t threads = 0;
  size_t rotary = 0;
  size_t experts = 0;     // A row of the router's logits.
  size_t expert_ffn = 0;  // A row of what an expert has within.
  size_t most_used = 0;   // Experts of a row, in the layer with the most; 0: none has any.
  size_t branch = 0;      // A row of a branch, where it does not go to the residual stream at once.
};

// With which threads a shard is loaded, and to where.
struct ShardLoading {
  ThreadPool* threads = nullptr;
  const WeightPlacer* placer = nullptr;  // nullptr: anywhere.
  // Whether what the store has may be mapped, and moved by one thread later: to that one's node.
  bool may_map = false;
  PageMover::DoneFn moved = nullptr;
};

// Works on the calling thread and the pool; every call has done its work when it returns, but for
// Head, whose product is computed by ReadLogits where its result goes.
class CpuShard : public Shard {
 public:
  // `spec` was found supported. Computes with `pool`.
  static absl::StatusOr<std::unique_ptr<CpuShard>> Create(
      const StageSpec& spec, const TensorSource& source, PackedStore* packed,
      const LoadProgressFn& progress, const Kernels* kernels, const ShardLoading& how,
      std::shared_ptr<ThreadPool> pool);

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
  absl::Status ResizeKv(std::span<const uint64_t> pages) override;
  uint64_t MemoryBytes() const override;
  uint64_t StepReadBytes() const override { return weights_.StepReadBytes(); }

 private:
  CpuShard(const StageSpec& spec, const Kernels* kernels, std::shared_ptr<ThreadPool> pool);
  absl::Status Allocate();
  absl::Status CheckItem(const BatchItem& item, uint32_t first_row) const;
  absl::Status CheckLayer(uint32_t layer) const;
  absl::Status CheckKept(uint32_t layer, std::span<const uint32_t> rows) const;

  // Rows that one thread embeds, norms, turns, routes or adds faster than it wakes the others.
  static constexpr size_t kSmallRows = 4;

  // How rows are packed and multiplied; defined in cpu_shard_products.cc, to AddBranchRow.

  // Whether a product takes its rows quantized.
  bool TakesInt8(const Linear& linear) const;
  // What the products with `users` take: rows of x, [rows][stride], `inputs` of each; normed first
  // where there is a weight.
  struct Inputs {
    const float* x = nullptr;
    size_t stride = 0;
    size_t inputs = 0;
    bool int8 = false;  // Whether they are taken quantized, and as floats.
    bool floats = false;
    const std::vector<float>* norm_weight = nullptr;
    NormKind norm = NormKind::kRms;
    float norm_eps = 0;
    uint8_t* quantized = nullptr;  // All of them, of one block, which are not to be packed then.
  };
  using Users = std::initializer_list<const Linear*>;
  Inputs Rows(const float* x, size_t stride, size_t inputs, Users users) const;
  // The same, normed first.
  static Inputs Normed(Inputs inputs, const std::vector<float>& weight, NormKind norm, float eps);
  // Of the residual stream, for a branch's first products, normed by `before` if it is not empty.
  Inputs BranchInputs(const LayerSpec& spec, const std::vector<float>& before, Users users) const;

  // Where inputs are packed, and what they are when normed.
  struct PackedRows {
    float* normed = nullptr;
    uint8_t* floats = nullptr;  // Row blocks, see kernels.h.
    uint8_t* int8 = nullptr;    // The same, quantized.
  };
  // Of all rows (thread 0), or of those that a thread packs for itself.
  PackedRows PackedBy(uint32_t thread);
  void PackBlock(const Inputs& inputs, RowBlock block, const PackedRows& to) const;
  // All `rows` by blocks, to PackedBy(0).
  void Pack(const Inputs& inputs, uint32_t rows);
  // Of the batch's rows: where they are few, each thread quantizes them for itself, so that none
  // waits for the one that does, nor fetches from its cache what it wrote; else all threads pack
  // them, block by block. To be called before threads share products, and by each of them then,
  // which returns what it multiplies.
  void PackForAll(const Inputs& inputs);
  PackedRows PackOwn(const Inputs& inputs, uint32_t thread);
  bool EachPacks(const Inputs& inputs) const {
    return batch_.rows <= sizes_.own_rows && !inputs.floats;
  }
  bool OneBlock() const { return RowBlocks(batch_.rows, kernels_->block_rows) == 1; }

  MatmulArgs Product(const Linear& linear, uint32_t rows, float* out, size_t stride,
                     bool add) const;
  static MatmulArgs WithRows(MatmulArgs product, const PackedRows& packed);
  // How many panels of a product threads share at a time. One that is left alone, where kernels
  // take two at once, takes as long as two with many rows, and is read slower with few; else what
  // counts is that all are done at the same time.
  size_t PanelsAtOnce(uint32_t rows) const { return rows < 9 ? kernels_->few_rows_panels : 2; }
  // Several products of the same rows; the second, of rows that are packed.
  void Multiply(const Inputs& inputs, std::span<const MatmulArgs> products);
  void MultiplyPacked(std::span<const MatmulArgs> products);
  // Adds the last product of a branch to the residual stream, normed (`after`, if not empty) and
  // multiplied as the layer says.
  void FinishBranch(const Inputs& inputs, const Linear& linear, const LayerSpec& spec,
                    const std::vector<float>& after);
  // Adds what the branch holds likewise; the second, of one row.
  void AddBranch(const LayerSpec& spec, const std::vector<float>& after);
  void AddBranchRow(const LayerSpec& spec, const std::vector<float>& after, size_t row);

  // gate := the activated product of gate and up.
  void Activate(const MlpSpec& mlp, float* gate, const float* up, size_t count) const;
  void DenseMlp(const LayerSpec& spec, const LayerWeights& weights);
  // Returns what `down` takes.
  Inputs MultiplyGated(const Inputs& inputs, const MlpSpec& mlp, const LayerWeights& weights,
                       uint32_t ffn);
  // Quantizes what a thread has computed of gate times up, the outputs of the panels [first, end),
  // which its cache still holds. Of a block that two threads have a half of each, the second does.
  void QuantizeGated(const Inputs& down, size_t first, size_t end);
  void MixtureMlp(const LayerSpec& spec, const LayerWeights& weights);
  void Route(const LayerSpec& spec, const LayerWeights& weights);
  void PackForExperts(const MixtureWeights& mixture);
  void MultiplyByExperts(const MlpSpec& mlp, const MixtureWeights& mixture);
  void AddExperts(const LayerSpec& spec, const std::vector<float>& after);
  // What was packed `by_place`, or else one row for all, times an expert's matrix; to [places].
  MatmulArgs ExpertProduct(const Linear& linear, const ExpertRows::Group& group, bool by_place,
                           float* out, size_t stride) const;
  template <typename Function>
  void SplitExperts(size_t panels, const Function& function);

  // Attention's parts: what the batch's rows append to the pages, and their `queries`, if they are
  // needed; the batch's other rows dropped from there on; what is attended, and the branch's end.
  // Where AppendsWhatItAttends each row's heads are turned and appended by the thread that attends
  // them, just before it does (`append`), as no other row sees them in this batch: the step waits
  // for all threads once less, and no thread for what is in another one's cache.
  bool AppendsWhatItAttends(uint32_t layer) const;
  void ProjectRows(uint32_t layer, bool queries);
  void AppendKeysAndValues(uint32_t layer, bool queries);
  void KeepRows(std::span<const uint32_t> rows);
  void FinishAttention(uint32_t layer, bool append);

  // Of them those with latent vectors (cpu_shard_latent.cc).
  void AppendLatents(uint32_t layer);
  void AttendLatents(uint32_t layer);
  void KeepLatents(uint32_t layer, const BatchItem& item, uint32_t row);
  // Where the heads of a row begin, and one after another.
  struct HeadRows {
    float* at = nullptr;
    size_t row = 0;
    size_t head = 0;
  };
  // out = weights * in, each head by itself.
  void MultiplyHeads(const std::vector<Linear>& weights, HeadRows in, HeadRows out);

  // Of KV heads, and of the query heads of each.
  struct HeadRange {
    uint32_t first = 0;
    uint32_t end = 0;
  };
  // Norms and turns a row's queries and keys, and appends its keys and values.
  void AppendHeads(uint32_t layer, const BatchItem& item, uint32_t row, HeadRange heads);
  void RotateAndAppend(uint32_t layer);
  void Attend(uint32_t layer, bool append);
  // Query heads that are computed as one: those of a KV head, or some that see the same latents.
  uint32_t HeadsAtOnce(uint32_t layer) const;
  // The attention of `rows` rows of an item from its row `first`, of the part'th such heads.
  AttendArgs Tile(uint32_t layer, const BatchItem& item, uint32_t first, uint32_t rows,
                  uint32_t part) const;
  void AttendByTiles(uint32_t layer, bool append);
  void AttendBySpans(uint32_t layer);
  bool SplitsSpans(uint32_t layer) const;
  // Of the layer's KV group; 0 where every key is seen.
  uint32_t WindowOf(uint32_t layer) const {
    return spec_.model.kv_groups[spec_.model.layers[layer].attention.kv_group].window;
  }

  StageSpec spec_;  // Only ResizeKv changes it: kv_pages.
  const Kernels* const kernels_;
  const std::shared_ptr<ThreadPool> pool_;
  const bool kv_f16_;
  const ScratchSizes sizes_;
  std::vector<uint32_t> groups_;                  // KV groups of the stage's layers.
  std::vector<std::array<size_t, 2>> rotary_at_;  // By layer of the stage and variant, floats.
  const uint32_t rotary_variants_;
  StageWeights weights_;
  std::unique_ptr<PageMover> mover_;  // Of weights_; null where nothing is mapped.
  KvCache kv_;
  AlignedBuffer rotary_;                      // See RopesOf.
  AlignedBuffer residual_;                    // [rows][sizes_.hidden]
  AlignedBuffer branch_;                      // [rows][sizes_.branch]
  AlignedBuffer normed_, packed_, int8_;      // See PackedBy.
  AlignedBuffer gated_;                       // Quantized rows of one block, of what gate_ holds.
  std::vector<std::atomic<uint8_t>> halves_;  // Of QuantizeGated: by block of 32.
  AlignedBuffer q_, k_, v_;
  AlignedBuffer attended_;                          // [rows][sizes_.queries]
  AlignedBuffer query_latent_, absorbed_, summed_;  // [rows][sizes_.query_rank, .absorbed, .summed]
  AlignedBuffer gate_, up_;             // [rows][sizes_.ffn], or [places][sizes_.expert_ffn]
  AlignedBuffer router_, router_keys_;  // [rows][sizes_.experts]
  ExpertRows expert_rows_;
  AlignedBuffer expert_out_;         // [places][sizes_.hidden]
  AlignedBuffer attend_;             // [threads][sizes_.attend]
  AlignedBuffer partial_;            // [items][query heads][spans][PartialFloats]
  std::vector<uint32_t> tile_ends_;  // Of each item, counted over the items before it too.
  std::vector<AskedPages> asked_;    // By thread: of the attention's units in turn.
  Batch batch_;
  std::vector<BatchItem> kept_;  // What KeepRows made of its items.
  uint32_t head_rows_ = 0;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_CPU_SHARD_H_
