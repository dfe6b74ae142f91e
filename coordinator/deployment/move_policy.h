// The decision of moves, in a translation unit of its own as worker/runner/step_policy.h: a test
// links another, to show that what was admitted fails without it.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_MOVE_POLICY_H_
#define STRATA_COORDINATOR_DEPLOYMENT_MOVE_POLICY_H_

namespace strata::move_policy {

// Whether sessions may go to a placement. `fits`: each of them can be served there.
bool MayMove(bool fits);

// Whether a placement that loads beside the one that serves may take its place. `loaded`: all of
// its stages say so.
bool MaySwitch(bool loaded);

}  // namespace strata::move_policy

#endif  // STRATA_COORDINATOR_DEPLOYMENT_MOVE_POLICY_H_
