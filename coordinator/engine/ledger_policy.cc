#include "coordinator/engine/ledger_policy.h"

namespace strata::ledger_policy {

uint64_t PagesToReserve(uint64_t need) { return need; }

uint32_t TokensToCharge(uint32_t charged, uint32_t length) { return length; }

bool PublishesWhenSent() { return false; }

bool FreesWhenPlanned() { return false; }

bool ForksHoldTheirPrefix() { return true; }

}  // namespace strata::ledger_policy
