// A stage that goes on with pages of which some layers have not come.
#define CarriedIsWhole GuardedCarriedIsWhole
#include "worker/runner/step_policy.cc"
#undef CarriedIsWhole

namespace strata::step_policy {

bool CarriedIsWhole(uint64_t, uint64_t) { return true; }

}  // namespace strata::step_policy
