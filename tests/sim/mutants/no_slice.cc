// A worker that goes on with an item at any layer.
#define SliceFollows GuardedSliceFollows
#include "worker/runner/step_policy.cc"
#undef SliceFollows

namespace strata::step_policy {

bool SliceFollows(uint32_t from, uint32_t next_layer) { return true; }

}  // namespace strata::step_policy
