// A coordinator that names token masks which a stage had before a fence.
#include "coordinator/engine/fault_policy.h"

namespace strata::fault_policy {

bool ComputesSuspectsApart() { return true; }

bool IsOffender(size_t lost) { return lost == 1; }

bool MasksOutliveFence() { return true; }

}  // namespace strata::fault_policy
