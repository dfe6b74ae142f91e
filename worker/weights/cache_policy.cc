#include "worker/weights/cache_policy.h"

namespace strata::cache_policy {

bool IsBlob(std::string_view found, std::string_view named) { return found == named; }

bool IsIntact(uint32_t found, uint32_t noted) { return found == noted; }

}  // namespace strata::cache_policy
