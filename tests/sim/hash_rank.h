// A rank of a stage that computes hashes (tests/worker/runner/hash_shard.h): it keeps some bytes of
// what layers keep of each position, and gathers the others' at each step.
#ifndef STRATA_TESTS_SIM_HASH_RANK_H_
#define STRATA_TESTS_SIM_HASH_RANK_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tests/worker/runner/hash_shard.h"
#include "worker/backend/rank_shard.h"
#include "worker/backend/shard_calls.h"

namespace strata::sim {

class HashRank : public RankShard {
 public:
  HashRank(const StageSpec& spec, const RankPlace& place);

  // The next layer fails.
  void FailNext() { fails_next_ = true; }
  // As HashShard's; only the first rank knows tokens.
  void FailAtToken(uint32_t token_id) { fail_token_ = token_id; }
  void PoisonToken(uint32_t token_id, uint32_t layer) { poison_ = {token_id, layer}; }

  void Connect(std::unique_ptr<Collective> collective, uint64_t epoch) override;
  void Abort(const absl::Status& why) override;
  absl::Status ShareResidual() override;
  absl::Status GatherLogits(std::span<float> logits) override;
  absl::Status GatherBytes(uint8_t* row, std::span<const ByteColumns> columns) override;
  // It gives no pages away.
  void ForPageParts(uint32_t,
                    const std::function<void(size_t, size_t, size_t, size_t)>&) const override {}
  const ShardCalls& calls() const override { return calls_; }
  const Batch& batch() const override { return batch_; }

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
  uint64_t MemoryBytes() const override { return 0; }
  uint64_t StepReadBytes() const override { return 0; }

 private:
  using HashRow = strata::testing::HashRow;
  // Whether it is finite, then its state.
  static constexpr size_t kRowBytes = 9;
  using RowBytes = std::array<uint8_t, kRowBytes>;

  static void Encode(const HashRow& row, uint8_t* out);
  static HashRow Decode(const uint8_t* bytes);

  void MakeKv();
  absl::Status MayFail();
  // Rows of which each rank has its bytes, of all rows one behind another, in `parts_`.
  absl::Status GatherParts(size_t rows);
  RowBytes* Slot(uint32_t layer, const PageTableView& table, uint32_t position);
  // The keys that the rows of an item see, from this position on.
  uint32_t FirstKey(uint32_t layer, const BatchItem& item) const;
  absl::Status AppendKv(uint32_t layer);
  // Of each item the keys that its rows see, of this rank.
  absl::Status PackKeys(uint32_t layer, size_t keys);
  void Attend(uint32_t layer, size_t keys);

  StageSpec spec_;
  const RankPlace place_;
  const ShardCalls calls_;
  // By rank: of a row's bytes, and of the logits.
  std::vector<ByteColumns> bytes_of_;
  std::vector<ByteColumns> logits_of_;
  std::unique_ptr<Collective> collective_;
  CollectivePoint point_;
  Batch batch_;
  std::vector<HashRow> rows_;
  std::vector<uint32_t> kept_ids_;
  std::vector<uint32_t> head_rows_;
  std::vector<std::vector<RowBytes>> kv_;  // By layer of the stage, page and slot; own bytes.
  std::vector<uint8_t> parts_;             // Of all ranks.
  std::vector<ByteColumns> columns_;
  bool fails_next_ = false;
  std::optional<uint32_t> fail_token_;
  std::optional<std::pair<uint32_t, uint32_t>> poison_;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_HASH_RANK_H_
