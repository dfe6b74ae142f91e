#include "coordinator/engine/stall_policy.h"

namespace strata::stall_policy {

// The first is fenced, which opens all links anew; the second is of those.
bool GoesOn(int stalls_in_a_row) { return stalls_in_a_row >= 2; }

}  // namespace strata::stall_policy
