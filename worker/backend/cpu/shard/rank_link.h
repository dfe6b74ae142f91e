// What of a stage's outputs one rank computes, and how it gets those of the others.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_RANK_LINK_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_RANK_LINK_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/model/rank_outputs.h"
#include "worker/collective/collective.h"

namespace strata::cpu {

// Of a row of floats what each rank computes, by rank, ascending.
using RankColumns = std::vector<OutputRange>;

// One rank's. All ranks of a stage make the same calls in the same order.
class RankLink {
 public:
  // `ranks` is SplitOutputs' of the stage's model.
  RankLink(const ModelSpec& model, const std::vector<RankOutputs>& ranks, uint32_t rank);

  // Where there is nobody to gather from.
  bool alone() const { return hidden_.size() == 1; }
  const RankOutputs& outputs() const { return ranks_[rank_]; }
  const std::vector<RankOutputs>& ranks() const { return ranks_; }
  OutputRange own(const RankColumns& columns) const { return columns[rank_]; }

  const RankColumns& hidden() const { return hidden_; }
  // The first rank has all of it: what it hands the others.
  const RankColumns& from_first() const { return from_first_; }
  const RankColumns& logits() const { return logits_; }
  // `layer` is the model's index. What leaves attention, and its queries and its keys before it; of
  // a key that several ranks have, the first of them gives it.
  const RankColumns& attended(uint32_t layer) const { return layers_[layer].attended; }
  const RankColumns& queries(uint32_t layer) const { return layers_[layer].queries; }
  const RankColumns& keys(uint32_t layer) const { return layers_[layer].keys; }
  const RankColumns& ffn(uint32_t layer) const { return layers_[layer].ffn; }
  const RankColumns& shared_ffn(uint32_t layer) const { return layers_[layer].shared_ffn; }
  // Of all ranks.
  static size_t Width(const RankColumns& columns) { return columns.back().end; }
  // Floats of the widest row of queries, or of what leaves attention, of layers [first, last].
  size_t AttendedWidth(uint32_t first, uint32_t last) const;

  // The collective of an epoch, where there are other ranks: before the first Begin, and after an
  // error.
  void Connect(std::unique_ptr<Collective> collective, uint64_t epoch);
  // The next step begins.
  void Begin();
  // Of `data`, [rows][stride], of which this rank has written its columns: fills in the others';
  // with `to_first` on the first rank alone.
  // The collective's contract holds.
  absl::Status Gather(float* data, size_t rows, size_t stride, const RankColumns& columns,
                      bool to_first = false);
  // The same of one row of bytes.
  absl::Status GatherBytes(uint8_t* row, std::span<const ByteColumns> columns);
  // Until all ranks are here.
  absl::Status Barrier();
  // Until what was gathered is there, where the rows are a device's.
  absl::Status Finish();
  // This rank gives up, and all hear of it.
  void Abort(const absl::Status& why);
  // Ends what is under way, before its memory goes. Nothing but Connect may follow.
  void Leave() { collective_.reset(); }

 private:
  struct Layer {
    RankColumns attended, queries, keys, ffn, shared_ffn;
  };

  const uint32_t rank_;
  const std::vector<RankOutputs> ranks_;
  RankColumns hidden_, from_first_, logits_;
  std::vector<Layer> layers_;
  // Of this call and the one before it, which others may still look at.
  std::array<std::vector<ByteColumns>, 2> columns_;
  std::unique_ptr<Collective> collective_;
  CollectivePoint point_;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_RANK_LINK_H_
