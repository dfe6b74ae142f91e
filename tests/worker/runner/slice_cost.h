// What a stage that is simulated says a frame takes, by the layers that it computes of it.
#ifndef STRATA_TESTS_WORKER_RUNNER_SLICE_COST_H_
#define STRATA_TESTS_WORKER_RUNNER_SLICE_COST_H_

#include <algorithm>
#include <cstdint>

#include "common/frame.h"
#include "worker/runner/item_slice.h"

namespace strata::testing {

// Of all of a stage's layers, the share that any item has; and that of each row, summed.
struct SliceCost {
  double layers = 0;
  double rows = 0;
};

inline SliceCost CostOf(const v1::StepFrame& frame, const StageLayers& stage) {
  SliceCost cost;
  for (const v1::StepItem& item : frame.items()) {
    const ItemSlice slice = SliceOf(item);
    const uint32_t begin = stage.BeginOf(slice);
    const uint32_t computed = std::max(begin, stage.EndOf(slice)) - begin;
    const double share = static_cast<double>(computed) / (stage.last + 1 - stage.first);
    cost.layers = std::max(cost.layers, share);
    cost.rows += share * item.token_ids_size();
  }
  return cost;
}

// Has the newest stage of a step or a result say so.
template <typename Header>
void SayComputeMs(double ms, Header* header) {
  header->mutable_stages(header->stages_size() - 1)->set_compute_ms(ms);
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_WORKER_RUNNER_SLICE_COST_H_
