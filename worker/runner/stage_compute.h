// One step's arithmetic: the accepted items of a frame as one batch through the stage's layers.
#ifndef STRATA_WORKER_RUNNER_STAGE_COMPUTE_H_
#define STRATA_WORKER_RUNNER_STAGE_COMPUTE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/frame.h"
#include "worker/backend/shard.h"
#include "worker/backend/stage.h"
#include "worker/runner/item_slice.h"
#include "worker/runner/sequence_table.h"

namespace strata {

// An accepted item on its way through the stage.
struct ItemRun {
  int index = 0;  // Into the frame's items.
  ItemSlice slice;
  uint32_t payload_row = 0;  // Of the item's first row in the payload that is sent on.
  uint32_t batch_row = 0;    // And in the batch, which has accepted items only.
  uint32_t rows = 0;
  // float32 [rows, hidden]: from the stage before, or as they were parked here; unless embedded.
  std::span<const float> input;
  Sequence* sequence = nullptr;
  uint32_t old_length = 0;               // Before the item.
  uint32_t drafts = 0;                   // The last of the rows, which may be cut off again.
  std::vector<float> parked;             // What is to stay here of a slice, as `input`.
  absl::Status status;                   // Not ok: the item failed here, after it was accepted.
  std::vector<v1::LayerDigest> digests;  // Of this stage's layers, for an item that asks.
};

// One thread. `spec` and `shard` outlive it.
class StageCompute {
 public:
  StageCompute(const StageSpec* spec, Shard* shard) : spec_(*spec), shard_(*shard) {}

  // The stage's layers that are within the runs' slice, which is the same of all, for the items'
  // rows at positions from `old_length` on, whose pages and ids the sequences already have. Sets
  // batch_row and digests.
  //
  // In the model's last layer only rows whose logits are wanted go on behind their keys and values;
  // where none are, it is left to AppendLast.
  absl::Status Forward(const v1::StepFrame& frame, const SequenceTable& table,
                       std::span<ItemRun> runs);

  // Whether a slice goes through the head: ReadLogits or AppendLast follow on Forward then, and
  // else ReadResidual.
  bool ToTheHead(const ItemSlice& slice) const {
    return spec_.heads && slice.end == ItemSlice::kToTheEnd;
  }

  // Has to follow on Forward where no logits are wanted at the end of the model: appends the last
  // layer's keys and values. The residual stream until then is that before the last layer.
  absl::Status AppendLast();

  // The residual stream after Forward, where that did not end with wanted rows only: calls `rows`
  // with each run and its rows' values.
  absl::Status ReadResidual(std::span<ItemRun> runs,
                            const std::function<void(ItemRun&, std::span<const float>)>& rows);

  // Whether logits are wanted of the batch of Forward, which went to the head.
  bool logits_wanted() const { return !wanted_.empty(); }

  // Where the device finds the largest logit itself: calls `largest` with each wanted row of which
  // `only` says that no more is wanted (its run, its index in the item), and its id. Rows that are
  // left, also for not being usable, are those of ReadLogits.
  absl::Status ReadLargest(const std::function<bool(const ItemRun&, uint32_t)>& only,
                           const std::function<void(const ItemRun&, uint32_t, uint32_t)>& largest);

  // The logits after Forward: calls `row` with each wanted row, in order: the run, the row's index
  // in the item, its logits.
  absl::Status ReadLogits(
      const std::function<void(ItemRun&, uint32_t, std::span<const float>)>& row);

 private:
  struct HeadRow {
    ItemRun* run;
    uint32_t row;        // Of the item.
    uint32_t batch_row;  // When Forward has ended.
  };

  // The model's last layer, of the wanted rows.
  absl::Status ForwardLast();
  // Sets wanted_: the batch's rows whose logits are to be read.
  void FindWanted(const v1::StepFrame& frame, std::span<ItemRun> runs);
  // Of the runs' tokens, and the rows of input embeddings that replace some.
  absl::Status Embed(const v1::StepFrame& frame, std::span<const ItemRun> runs);
  // What the layer, the newest that was computed, made of the rows of items that ask.
  absl::Status DigestLayer(const v1::StepFrame& frame, uint32_t layer, std::span<ItemRun> runs);

  const StageSpec& spec_;
  Shard& shard_;
  // What the batch in the shard's hands points to, kept until it was read.
  std::vector<uint32_t> token_ids_;
  std::vector<float> gathered_;
  std::vector<std::vector<PageTableView>> views_;
  std::vector<BatchItem> items_;
  uint32_t batch_rows_ = 0;
  std::vector<HeadRow> wanted_;
  bool last_is_left_ = false;  // To AppendLast.
  std::vector<float> read_;
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_STAGE_COMPUTE_H_
