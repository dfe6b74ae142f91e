// How much steps compute at once, where the planner counts the memory that this takes
// (common/footprint) and a backend allocates it.
#ifndef STRATA_COMMON_MODEL_STEP_LIMITS_H_
#define STRATA_COMMON_MODEL_STEP_LIMITS_H_

#include <cstdint>

namespace strata {

// Keys whose scores attention has at once. A span's sums are merged with those before it, so that
// the number is part of the numerics (worker/backend/cpu/kernels/kernels.h).
inline constexpr uint32_t kAttentionSpanKeys = 512;

// On a GPU: rows of logits that are computed, and copied to the host, at once.
inline constexpr uint32_t kDeviceLogitRows = 64;
// On a GPU with up to so many queries, of a row and a head each, spans of keys are computed apart.
inline constexpr uint32_t kDeviceQueriesBySpans = 512;

}  // namespace strata

#endif  // STRATA_COMMON_MODEL_STEP_LIMITS_H_
