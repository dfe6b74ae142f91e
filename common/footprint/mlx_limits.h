// How stages on MLX keep weights, and how much they compute at once: the planner counts the memory
// that this takes, and the backend keeps to it.
#ifndef STRATA_COMMON_FOOTPRINT_MLX_LIMITS_H_
#define STRATA_COMMON_FOOTPRINT_MLX_LIMITS_H_

#include <cstdint>

#include "common/model/dtype.h"

namespace strata {

// Arrays of a step that wait to be computed, beside what one step of a layer adds.
inline constexpr uint64_t kMlxGraphBytes = uint64_t{64} << 20;
// Scores of queries that are attended at once, but for one row's.
inline constexpr uint64_t kMlxScoreBytes = uint64_t{16} << 20;
// Of a matrix of floats in two bytes, what is widened to float32 at once for a product.
inline constexpr uint64_t kMlxWidenedBytes = uint64_t{4} << 20;
// Memory that MLX keeps for the next step.
inline constexpr uint64_t kMlxCacheBytes = uint64_t{64} << 20;

// How MLX keeps a matrix in a format of blocks, exactly: as integers with a scale and a bias for
// each 32 inputs, or as its own mxfp4; else, with 0 bits, as float32.
struct MlxBlocks {
  uint32_t bits = 0;
  bool mxfp4 = false;
};
MlxBlocks MlxBlocksOf(Dtype dtype);

}  // namespace strata

#endif  // STRATA_COMMON_FOOTPRINT_MLX_LIMITS_H_
