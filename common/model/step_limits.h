// How much steps compute at once, where the planner counts the memory that this takes
// (common/footprint) and a backend allocates it.
#ifndef STRATA_COMMON_MODEL_STEP_LIMITS_H_
#define STRATA_COMMON_MODEL_STEP_LIMITS_H_

#include <cstdint>

namespace strata {

// Keys whose scores attention has at once. A span's sums are merged with those before it, so that
// the number is part of the numerics (worker/backend/cpu/kernels/kernels.h).
inline constexpr uint32_t kAttentionSpanKeys = 512;

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_STEP_LIMITS_H_
