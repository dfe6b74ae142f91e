// A rank of a stage as it ships, which may fail a call or be a step behind.
#ifndef STRATA_TESTS_SIM_RANKS_FAULTY_RANK_H_
#define STRATA_TESTS_SIM_RANKS_FAULTY_RANK_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "worker/backend/rank_shard.h"

namespace strata::sim {

// What a rank does wrong, once.
struct RankFaults {
  std::optional<uint32_t> fails_in = {};   // After so many calls of layers.
  std::optional<uint32_t> behind_in = {};  // After so many gathers, once the step before was alike.
  bool failed = false;
  bool was_behind = false;
};

// Gathers what `inner` does, or once what it did in the step before.
class BehindCollective : public Collective {
 public:
  BehindCollective(std::unique_ptr<Collective> inner, RankFaults* faults)
      : inner_(std::move(inner)), faults_(*faults) {}

  uint32_t rank() const override { return inner_->rank(); }
  uint32_t ranks() const override { return inner_->ranks(); }
  absl::Status Gather(const CollectivePoint& point, const GatheredRows& rows) override;
  absl::Status Barrier(const CollectivePoint& point) override { return inner_->Barrier(point); }
  void Abort(const absl::Status& why) override { inner_->Abort(why); }

 private:
  const std::unique_ptr<Collective> inner_;
  RankFaults& faults_;
  uint64_t step_ = 0;
  std::vector<std::vector<uint8_t>> before_;  // By call of the step before.
  std::vector<std::vector<uint8_t>> now_;
};

class FaultyRank : public RankShard {
 public:
  // Both outlive it.
  FaultyRank(RankShard* inner, RankFaults* faults) : inner_(*inner), faults_(*faults) {}

  void Connect(std::unique_ptr<Collective> collective, uint64_t epoch) override {
    inner_.Connect(std::make_unique<BehindCollective>(std::move(collective), &faults_), epoch);
  }
  void Abort(const absl::Status& why) override { inner_.Abort(why); }
  absl::Status ShareResidual() override { return inner_.ShareResidual(); }
  absl::Status GatherLogits(std::span<float> logits) override {
    return inner_.GatherLogits(logits);
  }
  absl::Status GatherBytes(uint8_t* row, std::span<const ByteColumns> columns) override {
    return inner_.GatherBytes(row, columns);
  }
  void ForPageParts(uint32_t group,
                    const std::function<void(size_t rank, size_t at, size_t of_whole,
                                             size_t bytes)>& copy) const override {
    inner_.ForPageParts(group, copy);
  }
  const ShardCalls& calls() const override { return inner_.calls(); }
  const Batch& batch() const override { return inner_.batch(); }

  absl::Status Begin(const Batch& batch) override { return inner_.Begin(batch); }
  absl::Status Embed() override { return inner_.Embed(); }
  absl::Status EmbedInputs(std::span<const uint32_t> rows, std::span<const float> values) override {
    return inner_.EmbedInputs(rows, values);
  }
  absl::Status SetResidual(std::span<const float> values) override {
    return inner_.SetResidual(values);
  }
  absl::Status Attention(uint32_t layer) override {
    const absl::Status failed = MayFail();
    return failed.ok() ? inner_.Attention(layer) : failed;
  }
  absl::Status AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) override {
    return inner_.AttentionOfSome(layer, rows);
  }
  absl::Status Mlp(uint32_t layer) override {
    const absl::Status failed = MayFail();
    return failed.ok() ? inner_.Mlp(layer) : failed;
  }
  absl::Status ReadResidual(std::span<float> out) override { return inner_.ReadResidual(out); }
  absl::Status Head(std::span<const uint32_t> rows) override { return inner_.Head(rows); }
  absl::Status ReadLogits(std::span<float> out) override { return inner_.ReadLogits(out); }
  absl::Status CopyPage(uint32_t group, PageId from, PageId to) override {
    return inner_.CopyPage(group, from, to);
  }
  uint64_t PageBytes(uint32_t group) const override { return inner_.PageBytes(group); }
  absl::Status ReadPage(uint32_t group, PageId page, std::span<uint8_t> out) override {
    return inner_.ReadPage(group, page, out);
  }
  absl::Status WritePage(uint32_t group, PageId page, std::span<const uint8_t> in) override {
    return inner_.WritePage(group, page, in);
  }
  absl::Status ResizeKv(std::span<const uint64_t> pages) override { return inner_.ResizeKv(pages); }
  uint64_t MemoryBytes() const override { return inner_.MemoryBytes(); }
  uint64_t StepReadBytes() const override { return inner_.StepReadBytes(); }

 private:
  absl::Status MayFail();

  RankShard& inner_;
  RankFaults& faults_;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_RANKS_FAULTY_RANK_H_
