// A worker that takes frames of epochs that were fenced off.
#define EpochIsOld GuardedEpochIsOld
#include "worker/runner/step_policy.cc"
#undef EpochIsOld

namespace strata::step_policy {

bool EpochIsOld(uint64_t epoch, uint64_t loaded) { return false; }

}  // namespace strata::step_policy
