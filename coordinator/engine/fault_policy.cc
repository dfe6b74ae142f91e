#include "coordinator/engine/fault_policy.h"

namespace strata::fault_policy {

bool ComputesSuspectsApart() { return true; }

bool IsOffender(size_t lost) { return lost == 1; }

bool MasksOutliveFence() { return false; }

}  // namespace strata::fault_policy
