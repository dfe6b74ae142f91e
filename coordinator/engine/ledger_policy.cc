#include "coordinator/engine/ledger_policy.h"

namespace strata::ledger_policy {

uint64_t PagesToReserve(uint64_t need) { return need; }

bool FreesWhenPlanned() { return false; }

}  // namespace strata::ledger_policy
