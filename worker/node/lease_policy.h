// The lease's decisions, in a translation unit of their own as worker/runner/step_policy.h: a test
// links others.
#ifndef STRATA_WORKER_NODE_LEASE_POLICY_H_
#define STRATA_WORKER_NODE_LEASE_POLICY_H_

#include "common/clock.h"

namespace strata::lease_policy {

// Whether a lease that was last renewed to `end` is over. From then on the worker asks who answers
// where its coordinator was.
bool HasLapsed(TimePoint now, TimePoint end);

// Who answers there.
enum class Coordinator {
  kNobody,  // It is gone, or stands still, as a machine that was suspended.
  kSame,    // The process whose lease this is, so that its term is still the newest.
  kAnother  // Each process raises the term when it starts: a newer one.
};

// Whether a lapsed lease ends the worker's life: it then drops every sequence of that coordinator,
// and registers again as another incarnation. A newer term always ends it. The same coordinator is
// given another `lease` from its first answer, since renewals of heartbeats that waited for it are
// on their way; then it has forgotten the worker. While nobody answers there is nobody who would
// use what is dropped.
bool EndsLife(Coordinator answers, nanoseconds answers_since, nanoseconds lease);

}  // namespace strata::lease_policy

#endif  // STRATA_WORKER_NODE_LEASE_POLICY_H_
