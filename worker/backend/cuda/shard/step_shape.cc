#include "worker/backend/cuda/shard/step_shape.h"

namespace strata::cuda {

bool SameLaunches(const StepShape& a, const StepShape& b) {
  return a.rows == b.rows && a.head_rows == b.head_rows && a.single_rows == b.single_rows &&
         a.most_keys == b.most_keys && a.calls == b.calls;
}

}  // namespace strata::cuda
