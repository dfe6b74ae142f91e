// What is sampled behind a draft is held to the set behind the draft before it.
#include "coordinator/engine/draft_policy.h"

namespace strata::draft_policy {

uint32_t Accepted(uint32_t sampled, uint32_t /*drafted*/) { return sampled - 1; }

bool ConfirmsAhead(uint32_t guess, uint32_t token) { return guess == token; }

uint32_t SetBehind(uint32_t index) { return index > 0 ? index - 1 : 0; }

bool CutsRejected() { return true; }

bool FenceEndsDrafts() { return true; }

bool GivesPagesBack() { return true; }

}  // namespace strata::draft_policy
