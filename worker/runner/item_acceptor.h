// Which items of a frame a stage computes: the step rule, and what a step's items may ask together.
#ifndef STRATA_WORKER_RUNNER_ITEM_ACCEPTOR_H_
#define STRATA_WORKER_RUNNER_ITEM_ACCEPTOR_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "worker/backend/stage.h"
#include "worker/runner/item_slice.h"
#include "worker/runner/sequence_table.h"
#include "worker/runner/stage_compute.h"
#include "worker/runner/token_masks.h"

namespace strata {

// One thread. What it is given outlives it.
class ItemAcceptor {
 public:
  ItemAcceptor(const StageSpec* spec, SequenceTable* table, const TokenMasks* masks)
      : spec_(*spec), stage_{spec->first_layer, spec->last_layer}, table_(*table), masks_(*masks) {}

  // The frame's items follow.
  void Begin(const v1::StepFrame& frame);
  // The next one, whose slice, rows and input `run` has. Errors as ShardRunner says; all checks
  // come before any change of state. Else its ids and pages are the sequence's, the slice is noted
  // there, and `run` knows the sequence and its length before.
  absl::Status Accept(const v1::StepItem& item, ItemRun* run);

 private:
  // An item's first slice, or the whole of it; run->sequence is null where there is none yet.
  absl::Status BeginItem(const v1::StepItem& item, ItemRun* run);
  // A further slice.
  absl::Status ContinueItem(const v1::StepItem& item, const ItemRun& run);
  absl::Status CheckNamedOnce(const v1::StepItem& item, const ItemSlice& slice) const;
  absl::Status CheckLogitsRows(const v1::StepItem& item) const;
  absl::Status CheckParkedRows(const ItemRun& run) const;

  const StageSpec& spec_;
  const StageLayers stage_;
  SequenceTable& table_;
  const TokenMasks& masks_;
  // Of the items so far: where those begin that name a sequence by slices, else nothing.
  std::map<std::pair<std::string, uint64_t>, std::set<uint32_t>> named_;
  uint64_t logits_rows_ = 0;
  uint64_t parked_rows_ = 0;  // After the step, where the frame has slices.
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_ITEM_ACCEPTOR_H_
