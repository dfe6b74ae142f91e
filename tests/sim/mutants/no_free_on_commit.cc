// A coordinator that gives pages away when their Release is planned.
#define FreesWhenPlanned GuardedFreesWhenPlanned
#include "coordinator/engine/ledger_policy.cc"
#undef FreesWhenPlanned

namespace strata::ledger_policy {

bool FreesWhenPlanned() { return true; }

}  // namespace strata::ledger_policy
