// A step that was sent ahead of a result counts, whatever the result is.
#include "coordinator/engine/draft_policy.h"

namespace strata::draft_policy {

uint32_t Accepted(uint32_t sampled, uint32_t /*drafted*/) { return sampled - 1; }

bool ConfirmsAhead(uint32_t /*guess*/, uint32_t /*token*/) { return true; }

uint32_t SetBehind(uint32_t index) { return index; }

bool CutsRejected() { return true; }

bool FenceEndsDrafts() { return true; }

bool GivesPagesBack() { return true; }

}  // namespace strata::draft_policy
