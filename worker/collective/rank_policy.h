// A collective's decisions, each a question with one answer, in a translation unit of their own: a
// test links another one to show that taking any of them away gathers wrong bytes or waits in vain.
#ifndef STRATA_WORKER_COLLECTIVE_RANK_POLICY_H_
#define STRATA_WORKER_COLLECTIVE_RANK_POLICY_H_

#include <cstdint>

#include "worker/collective/rank_frame.h"

namespace strata::rank_policy {

// Whether what another rank sends is of the call that this rank is in.
bool IsOfCall(const RankFrameHead& own, const RankFrameHead& other);

// Whose columns rank `own` fills in with what `sender` sent, which came behind so many others.
uint32_t ColumnsOf(uint32_t own, uint32_t sender, uint32_t others_before);

// Whether a rank that waits within a call asks if its own side has given up.
bool HearsItsOwnAbort();

}  // namespace strata::rank_policy

#endif  // STRATA_WORKER_COLLECTIVE_RANK_POLICY_H_
