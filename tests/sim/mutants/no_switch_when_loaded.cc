// A placement takes another's place before all of its stages have loaded.
#define MaySwitch GuardedMaySwitch
#include "coordinator/deployment/move_policy.cc"
#undef MaySwitch

namespace strata::move_policy {

bool MaySwitch(bool) { return true; }

}  // namespace strata::move_policy
