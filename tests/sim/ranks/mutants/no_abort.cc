// A rank that waits on though its own side has given up.
#define HearsItsOwnAbort GuardedHearsItsOwnAbort
#include "worker/collective/rank_policy.cc"
#undef HearsItsOwnAbort

namespace strata::rank_policy {

bool HearsItsOwnAbort() { return false; }

}  // namespace strata::rank_policy
