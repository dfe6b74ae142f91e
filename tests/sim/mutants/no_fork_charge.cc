// A coordinator for whose forks nobody is charged once what they began with is gone.
#define ForksHoldTheirPrefix GuardedForksHoldTheirPrefix
#include "coordinator/engine/ledger_policy.cc"
#undef ForksHoldTheirPrefix

namespace strata::ledger_policy {

bool ForksHoldTheirPrefix() { return false; }

}  // namespace strata::ledger_policy
