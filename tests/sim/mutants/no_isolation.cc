// A coordinator that takes lost steps to be the fault of all whom they carried.
#include "coordinator/engine/fault_policy.h"

namespace strata::fault_policy {

bool ComputesSuspectsApart() { return false; }

bool IsOffender(size_t lost) { return true; }

bool MasksOutliveFence() { return false; }

}  // namespace strata::fault_policy
