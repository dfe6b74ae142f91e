#include "worker/node/same_load.h"

namespace strata {

bool SameButForKv(const v1::Load& a, const v1::Load& b) {
  const auto rest = [](v1::Load load) {
    load.clear_epoch();
    load.clear_beside();
    load.clear_kv_pages();
    load.clear_next_node();
    load.clear_next_incarnation();
    load.clear_next_address();
    load.clear_step_timeout_ms();
    return load.SerializeAsString();
  };
  // Ranks cannot be resized before they are joined.
  return !a.has_ranks() && !b.has_ranks() && rest(a) == rest(b);
}

}  // namespace strata
