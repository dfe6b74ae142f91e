// The memory that this process has allocated.
#ifndef STRATA_COMMON_PLATFORM_HEAP_H_
#define STRATA_COMMON_PLATFORM_HEAP_H_

#include <cstdint>

namespace strata {

// What was allocated and not given back, whatever of it is resident, and with what threads keep at
// hand for later; without mapped files. 0 when it cannot be told.
uint64_t HeapBytes();

}  // namespace strata

#endif  // STRATA_COMMON_PLATFORM_HEAP_H_
