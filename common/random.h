// Counter-based random numbers: a pure function of its key, so that a token's draw depends on
// nothing but (seed, choice, position).
#ifndef STRATA_COMMON_RANDOM_H_
#define STRATA_COMMON_RANDOM_H_

#include <cstdint>

namespace strata {

// Philox-4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011): the
// first two words of the block at counter (position, choice, 0, 0) under key `seed`.
uint64_t Philox(uint64_t seed, uint32_t choice, uint32_t position);

// In [0, 1), of 53 random bits.
inline double UniformDouble(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

}  // namespace strata

#endif  // STRATA_COMMON_RANDOM_H_
