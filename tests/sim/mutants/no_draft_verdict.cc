// One draft more than the last stage found right is taken for the answer's.
#include <algorithm>

#include "coordinator/engine/draft_policy.h"

namespace strata::draft_policy {

uint32_t Accepted(uint32_t sampled, uint32_t drafted) { return std::min(sampled, drafted); }

bool ConfirmsAhead(uint32_t guess, uint32_t token) { return guess == token; }

uint32_t SetBehind(uint32_t index) { return index; }

bool CutsRejected() { return true; }

bool FenceEndsDrafts() { return true; }

bool GivesPagesBack() { return true; }

}  // namespace strata::draft_policy
