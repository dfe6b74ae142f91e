// How much stages on MLX compute at once: the planner counts the memory that this takes, and the
// backend keeps to it.
#ifndef STRATA_COMMON_FOOTPRINT_MLX_LIMITS_H_
#define STRATA_COMMON_FOOTPRINT_MLX_LIMITS_H_

#include <cstdint>

namespace strata {

// Arrays of a step that wait to be computed, beside what one step of a layer adds.
inline constexpr uint64_t kMlxGraphBytes = uint64_t{64} << 20;
// Scores of queries that are attended at once, but for one row's.
inline constexpr uint64_t kMlxScoreBytes = uint64_t{16} << 20;
// Memory that MLX keeps for the next step.
inline constexpr uint64_t kMlxCacheBytes = uint64_t{64} << 20;

}  // namespace strata

#endif  // STRATA_COMMON_FOOTPRINT_MLX_LIMITS_H_
