// Sessions go to placements that cannot hold them.
#include "coordinator/deployment/move_policy.h"

namespace strata::move_policy {

bool MayMove(bool) { return true; }

}  // namespace strata::move_policy
