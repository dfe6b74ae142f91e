// What a sliding window sees.
#ifndef STRATA_COMMON_MODEL_WINDOW_H_
#define STRATA_COMMON_MODEL_WINDOW_H_

#include <cstdint>

namespace strata {

// The first position that a query at `position` sees: of `window` keys, its own included; 0: all.
constexpr uint32_t FirstSeen(uint32_t position, uint32_t window) {
  return window == 0 || position < window ? 0 : position + 1 - window;
}

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_WINDOW_H_
