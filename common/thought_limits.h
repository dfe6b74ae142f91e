// What a request may ask of thoughts.
#ifndef STRATA_COMMON_THOUGHT_LIMITS_H_
#define STRATA_COMMON_THOUGHT_LIMITS_H_

#include <cstdint>

namespace strata {

inline constexpr uint32_t kMaxThoughtBudget = 1u << 20;  // Tokens.

}  // namespace strata

#endif  // STRATA_COMMON_THOUGHT_LIMITS_H_
