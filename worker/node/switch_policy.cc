#include "worker/node/switch_policy.h"

namespace strata::switch_policy {

bool TakesPlace(uint64_t named, uint64_t loaded) { return named == loaded; }

bool IsMeant(uint64_t named, uint64_t loaded) { return named == 0 || named == loaded; }

bool FindsItsLinks(uint64_t ahead, uint64_t fenced) { return ahead == fenced; }

}  // namespace strata::switch_policy
