#include "worker/service/lease_policy.h"

namespace strata::lease_policy {

bool HasLapsed(TimePoint now, TimePoint end) { return now >= end; }

}  // namespace strata::lease_policy
