// The decision about stalls that follow one another, in a translation unit of its own as
// worker/runner/step_policy.h: a test links another one.
#ifndef STRATA_COORDINATOR_ENGINE_STALL_POLICY_H_
#define STRATA_COORDINATOR_ENGINE_STALL_POLICY_H_

namespace strata::stall_policy {

// Whether a pipeline that has stalled so often without a step in between stalls for a reason that
// new links do not mend: it may be slower than it was, and is then given the step timeout.
bool GoesOn(int stalls_in_a_row);

}  // namespace strata::stall_policy

#endif  // STRATA_COORDINATOR_ENGINE_STALL_POLICY_H_
