#include "coordinator/cluster/holder_policy.h"

namespace strata::holder_policy {

bool StillHas(bool gone) { return !gone; }

}  // namespace strata::holder_policy
