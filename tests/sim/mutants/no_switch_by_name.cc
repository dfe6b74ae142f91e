// A stage that was loaded beside another takes its place at a fence that names another Load.
#define TakesPlace GuardedTakesPlace
#include "worker/node/switch_policy.cc"
#undef TakesPlace

namespace strata::switch_policy {

bool TakesPlace(uint64_t, uint64_t) { return true; }

}  // namespace strata::switch_policy
