// What a piece of work takes, by the allocator's count: the same on any machine, however busy. Work
// that goes over much makes something of it, so that what is not bounded shows here too.
#ifndef STRATA_TESTS_COST_H_
#define STRATA_TESTS_COST_H_

#include <cstdint>

#include "tests/counting_allocator.h"

namespace strata::testing {

// All 0 under sanitizers.
struct Cost {
  uint64_t bytes = 0;            // At the peak, beyond what was there before.
  uint64_t allocations = 0;      // Of all threads.
  uint64_t allocated_bytes = 0;  // By these, given back or not.
};

template <typename F>
auto Measured(F f, Cost* cost) {
  const uint64_t live = LiveBytes();
  const uint64_t allocations = Allocations();
  const uint64_t allocated = AllocatedBytes();
  ResetPeak();
  auto result = f();
  const uint64_t peak = PeakBytes();
  cost->bytes = peak > live ? peak - live : 0;
  cost->allocations = Allocations() - allocations;
  cost->allocated_bytes = AllocatedBytes() - allocated;
  return result;
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_COST_H_
