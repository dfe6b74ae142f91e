// Which layers of an item a step computes, and where its rows are before and after it.
#ifndef STRATA_WORKER_RUNNER_ITEM_SLICE_H_
#define STRATA_WORKER_RUNNER_ITEM_SLICE_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "common/model/model_spec.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// Layers [from, end) of the model. With kToTheEnd all the others, and the head.
struct ItemSlice {
  static constexpr uint32_t kToTheEnd = std::numeric_limits<uint32_t>::max();
  uint32_t from = 0;
  uint32_t end = kToTheEnd;

  bool whole() const { return from == 0 && end == kToTheEnd; }
  // Whether the rows pass, with this step, into the stage whose first layer is `layer`.
  bool PassesInto(uint32_t layer) const { return from <= layer && layer < end; }
  bool operator==(const ItemSlice&) const = default;
};

// Where the rows of a slice are, seen from the stage of layers [first, last] of the model.
struct StageLayers {
  uint32_t first = 0;
  uint32_t last = 0;

  // They were parked here before the step.
  bool Kept(const ItemSlice& slice) const { return slice.from > first && slice.from <= last + 1; }
  // They are here during the step.
  bool Has(const ItemSlice& slice) const { return slice.PassesInto(first) || Kept(slice); }
  // They are parked here after the step.
  bool Keeps(const ItemSlice& slice) const { return Has(slice) && slice.end <= last + 1; }
  // What of it is computed here: layers [BeginOf, EndOf), none where the latter is not larger.
  uint32_t BeginOf(const ItemSlice& slice) const { return slice.from > first ? slice.from : first; }
  uint32_t EndOf(const ItemSlice& slice) const { return slice.end <= last ? slice.end : last + 1; }
};

ItemSlice SliceOf(const v1::StepItem& item);

// Whether any item of the frame is not whole.
bool HasSlices(const v1::StepFrame& frame);

// Rows of items that begin with the frame: all but those of further slices.
uint32_t RowsBegun(const v1::StepFrame& frame);

// Rows of the frame's payload on its way into the stage whose first layer is `layer` > 0.
uint64_t PayloadRows(const v1::StepFrame& frame, uint32_t layer);

// INVALID_ARGUMENT (ITEM_SLICE): no slice of such a model, or with what only whole items have.
absl::Status CheckSlice(const v1::StepItem& item, const ModelSpec& model);

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_ITEM_SLICE_H_
