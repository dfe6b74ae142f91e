// What is made of drafted tokens, in a translation unit of its own as ledger_policy.h: a test links
// other answers, to show that requests get wrong tokens, lose time or lose memory by them.
#ifndef STRATA_COORDINATOR_ENGINE_DRAFT_POLICY_H_
#define STRATA_COORDINATOR_ENGINE_DRAFT_POLICY_H_

#include <cstdint>

namespace strata::draft_policy {

// Of `drafted` tokens behind the last one that was known, how many are the answer's, where the last
// stage said `sampled` tokens, of which the last is its own.
uint32_t Accepted(uint32_t sampled, uint32_t drafted);

// Whether a step that was sent ahead of a result, on the guess that the next token is `guess`, is
// of use where it is `token`.
bool ConfirmsAhead(uint32_t guess, uint32_t token);

// Of the sets that a constraint has behind each draft, in order, which holds what is sampled behind
// draft `index`.
uint32_t SetBehind(uint32_t index);

// Whether those that came out otherwise are cut off before the sequence goes on.
bool CutsRejected();

// Whether a fence ends drafts under way, as it does all else.
bool FenceEndsDrafts();

// Whether pages that a claim took for drafts go back once these are cut off.
bool GivesPagesBack();

}  // namespace strata::draft_policy

#endif  // STRATA_COORDINATOR_ENGINE_DRAFT_POLICY_H_
