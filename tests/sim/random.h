// Random numbers that are a function of a seed alone.
#ifndef STRATA_TESTS_SIM_RANDOM_H_
#define STRATA_TESTS_SIM_RANDOM_H_

#include <cstdint>

#include "common/fingerprint.h"

namespace strata::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix64(seed + 1)) {}

  uint64_t Next() { return Mix64(state_ += 0x9E3779B97F4A7C15u); }
  // 0..limit - 1; limit > 0.
  uint32_t Below(uint64_t limit) { return static_cast<uint32_t>(Next() % limit); }
  // first..last, both possible.
  uint32_t Between(uint32_t first, uint32_t last) { return first + Below(last - first + 1); }
  bool OneIn(uint32_t n) { return Below(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_RANDOM_H_
