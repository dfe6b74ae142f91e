// A coordinator that admits what fits now, and reserves nothing.
#define PagesToReserve GuardedPagesToReserve
#include "coordinator/engine/ledger_policy.cc"
#undef PagesToReserve

namespace strata::ledger_policy {

uint64_t PagesToReserve(uint64_t need) { return 0; }

}  // namespace strata::ledger_policy
