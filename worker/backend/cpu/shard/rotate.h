// Rotary position embeddings of one head, in place, by the angles of one position: `half` cosines
// and as many sines. Their bits are the same everywhere: two products and a sum, no FMA.
#ifndef STRATA_WORKER_BACKEND_CPU_SHARD_ROTATE_H_
#define STRATA_WORKER_BACKEND_CPU_SHARD_ROTATE_H_

#include <cstdint>

#include "common/numerics/math.h"

namespace strata::cpu {

// x[i] and x[i + half], i < half: half-rotation.
inline void Rotate(const float* cosines, const float* sines, uint32_t half, float* x) {
  for (uint32_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cosines[i] - b * sines[i];
    x[i + half] = b * cosines[i] + a * sines[i];
  }
}

// x[2 i] and x[2 i + 1].
inline void RotateNeighbours(const float* cosines, const float* sines, uint32_t half, float* x) {
  for (uint32_t i = 0; i < half; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

// What AttentionSpec::query_growth multiplies the rotated queries of a position by.
inline float QueryGrowth(float growth, uint32_t every, uint32_t position) {
  const uint32_t times = position / every;
  return static_cast<float>(1.0 + double{growth} * LogF64(1.0 + times));
}

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_SHARD_ROTATE_H_
