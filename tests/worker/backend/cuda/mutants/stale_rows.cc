// Graphs of launches that are taken for steps of another number of rows.
#include "worker/backend/cuda/shard/step_shape.h"

namespace strata::cuda {

bool SameLaunches(const StepShape& a, const StepShape& b) {
  return a.most_keys == b.most_keys && a.calls == b.calls;
}

}  // namespace strata::cuda
