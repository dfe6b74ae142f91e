#include "coordinator/deployment/move_policy.h"

namespace strata::move_policy {

bool MayMove(bool fits) { return fits; }

}  // namespace strata::move_policy
