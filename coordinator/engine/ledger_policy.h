// The ledger's decisions, in a translation unit of their own as worker/runner/step_policy.h: a
// test links others, to show that what was admitted fails without them.
#ifndef STRATA_COORDINATOR_ENGINE_LEDGER_POLICY_H_
#define STRATA_COORDINATOR_ENGINE_LEDGER_POLICY_H_

#include <cstdint>

namespace strata::ledger_policy {

// Pages taken off the free ones for a session that may come to need `need`.
uint64_t PagesToReserve(uint64_t need);

// Tokens that a claim which was charged for `charged` of them is charged for once it covers
// `length`.
uint32_t TokensToCharge(uint32_t charged, uint32_t length);

// Whether a prefix is offered to others when it was sent, and not only when it was committed.
bool PublishesWhenSent();

// Whether a sequence's pages count as given back when its Release is planned, and not only when the
// step with the Release is committed.
bool FreesWhenPlanned();

// Whether a claim that begins with another one's pages holds them too, and so is charged for them
// when the other one is gone.
bool ForksHoldTheirPrefix();

}  // namespace strata::ledger_policy

#endif  // STRATA_COORDINATOR_ENGINE_LEDGER_POLICY_H_
