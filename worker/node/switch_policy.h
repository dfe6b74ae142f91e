// The decisions about a stage that is loaded beside another of its deployment, in a translation
// unit of their own as worker/runner/step_policy.h: a test links others.
#ifndef STRATA_WORKER_NODE_SWITCH_POLICY_H_
#define STRATA_WORKER_NODE_SWITCH_POLICY_H_

#include <cstdint>

namespace strata::switch_policy {

// Whether a fence that names the Load of epoch `named` (0: none) has the stage that was loaded
// beside another, by the Load of epoch `loaded`, take its place.
bool TakesPlace(uint64_t named, uint64_t loaded);

// Whether that fence is for the stage that stands, by the Load of epoch `loaded`.
bool IsMeant(uint64_t named, uint64_t loaded);

// Whether the fence of epoch `fenced` finds its links in those that were opened ahead for epoch
// `ahead`.
bool FindsItsLinks(uint64_t ahead, uint64_t fenced);

}  // namespace strata::switch_policy

#endif  // STRATA_WORKER_NODE_SWITCH_POLICY_H_
