// The decision about what nodes' caches have, in a translation unit of its own as
// coordinator/engine/ledger_policy.h: a test links another one.
#ifndef STRATA_COORDINATOR_CLUSTER_HOLDER_POLICY_H_
#define STRATA_COORDINATOR_CLUSTER_HOLDER_POLICY_H_

namespace strata::holder_policy {

// Whether a node counts as one that has some weights which it had; `gone`: it said that they are.
bool StillHas(bool gone);

}  // namespace strata::holder_policy

#endif  // STRATA_COORDINATOR_CLUSTER_HOLDER_POLICY_H_
