// What reading a file took: memory by a count of the allocator's, and time.
#ifndef STRATA_TESTS_MUTATIONS_COST_H_
#define STRATA_TESTS_MUTATIONS_COST_H_

#include <chrono>
#include <cstdint>
#include <utility>

#include "tests/counting_allocator.h"

namespace strata::testing {

struct Cost {
  uint64_t bytes = 0;  // At the peak, beyond what was there before.
  double seconds = 0;
};

template <typename F>
auto Measured(F f, Cost* cost) {
  const uint64_t before = LiveBytes();
  ResetPeak();
  const auto begin = std::chrono::steady_clock::now();
  auto result = f();
  cost->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const uint64_t peak = PeakBytes();
  cost->bytes = peak > before ? peak - before : 0;
  return result;
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_COST_H_
