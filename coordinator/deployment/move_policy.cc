#include "coordinator/deployment/move_policy.h"

namespace strata::move_policy {

bool MayMove(bool fits) { return fits; }

bool MaySwitch(bool loaded) { return loaded; }

}  // namespace strata::move_policy
