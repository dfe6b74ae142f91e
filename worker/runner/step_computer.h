// The items of one step that were accepted, computed whatever the backend fails at.
#ifndef STRATA_WORKER_RUNNER_STEP_COMPUTER_H_
#define STRATA_WORKER_RUNNER_STEP_COMPUTER_H_

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "common/frame.h"
#include "worker/backend/shard.h"
#include "worker/backend/stage.h"
#include "worker/runner/item_slice.h"
#include "worker/runner/result_builder.h"
#include "worker/runner/sequence_table.h"
#include "worker/runner/stage_compute.h"

namespace strata {

// One thread. What it is given outlives it.
class StepComputer {
 public:
  // `on_backend_failure` is called at each failure after which items are computed again.
  StepComputer(const StageSpec* spec, const SequenceTable* table, Shard* shard,
               ResultBuilder* result, std::function<void()> on_backend_failure)
      : spec_(*spec),
        stage_{spec->first_layer, spec->last_layer},
        table_(*table),
        compute_(spec, shard),
        result_(*result),
        on_backend_failure_(std::move(on_backend_failure)) {}

  // Leaves what is to be sent on in the frame's payload (or the result), and each run's status.
  // UNAVAILABLE (kDeviceFailed, kRanksBroken), and each run's status with it, where the device or a
  // rank failed for good: then no item is to blame, and none is tried again.
  absl::Status Compute(StepMessage* frame, std::span<ItemRun> runs);

 private:
  // Of what Compute does, these runs, of the same slice: at once, or, where the backend fails at
  // that, by halves down to the run that it fails at. `tried` is 1 for a run that it failed at
  // alone.
  void ComputeOrSplit(StepMessage* frame, std::span<ItemRun> runs, int tried);
  absl::Status ComputeOnce(StepMessage* frame, std::span<ItemRun> runs);
  absl::Status ComputeHidden(StepMessage* frame, std::span<ItemRun> runs);
  absl::Status ComputeLogits(const v1::StepFrame& frame, std::span<ItemRun> runs);

  const StageSpec& spec_;
  const StageLayers stage_;
  const SequenceTable& table_;
  StageCompute compute_;
  ResultBuilder& result_;
  const std::function<void()> on_backend_failure_;
  // Of the frame at hand.
  size_t failed_alone_ = 0;    // Runs that the backend failed at alone.
  bool any_computed_ = false;  // It did not fail at all of them.
  absl::Status last_failure_;
  absl::Status device_;  // Unless ok: it failed for good.
};

}  // namespace strata

#endif  // STRATA_WORKER_RUNNER_STEP_COMPUTER_H_
