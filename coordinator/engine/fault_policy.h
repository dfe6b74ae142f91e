// What is made of lost steps, in a translation unit of its own as ledger_policy.h: a test links
// another answer, to show that requests fail with one that breaks a stage.
#ifndef STRATA_COORDINATOR_ENGINE_FAULT_POLICY_H_
#define STRATA_COORDINATOR_ENGINE_FAULT_POLICY_H_

#include <cstddef>

namespace strata {

// Faults in a row, without progress, that a session which is alone at the last of them (or an idle
// pipeline) survives.
inline constexpr int kMaxFaultsWithoutProgress = 3;

}  // namespace strata

namespace strata::fault_policy {

// Whether sessions whose steps were lost are computed apart from the others, in halves.
bool ComputesSuspectsApart();

// Whether a session whose steps were lost too often is the one that breaks them: `lost` sessions
// had a step in flight the last time.
bool IsOffender(size_t lost);

// Whether the last stage has the token masks behind a fence that it had before.
bool MasksOutliveFence();

}  // namespace strata::fault_policy

#endif  // STRATA_COORDINATOR_ENGINE_FAULT_POLICY_H_
