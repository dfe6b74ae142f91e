// The lease's one decision, in a translation unit of its own as worker/runner/step_policy.h: a test
// links another one.
#ifndef STRATA_WORKER_SERVICE_LEASE_POLICY_H_
#define STRATA_WORKER_SERVICE_LEASE_POLICY_H_

#include "common/clock.h"

namespace strata::lease_policy {

// Whether a lease that was last renewed to `end` is over: the worker then drops every sequence of
// that coordinator, and registers again as another incarnation.
bool HasLapsed(TimePoint now, TimePoint end);

}  // namespace strata::lease_policy

#endif  // STRATA_WORKER_SERVICE_LEASE_POLICY_H_
