// What a piece of work takes: memory by the allocator's count, and the processor's time of its
// thread, so that others may be busy on the machine.
#ifndef STRATA_TESTS_COST_H_
#define STRATA_TESTS_COST_H_

#include <time.h>

#include <cstdint>
#include <utility>

#include "tests/counting_allocator.h"

namespace strata::testing {

// By what sanitized builds may take longer.
#ifdef STRATA_SANITIZED
inline constexpr double kSlower = 40;
#else
inline constexpr double kSlower = 1;
#endif

struct Cost {
  uint64_t bytes = 0;  // At the peak, beyond what was there before; 0 under sanitizers.
  double seconds = 0;
};

inline double SecondsOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
inline double ThreadSeconds() { return SecondsOf(CLOCK_THREAD_CPUTIME_ID); }
// Of all threads together.
inline double ProcessSeconds() { return SecondsOf(CLOCK_PROCESS_CPUTIME_ID); }

template <typename F>
auto Measured(F f, Cost* cost) {
  const uint64_t before = LiveBytes();
  ResetPeak();
  const double begin = ThreadSeconds();
  auto result = f();
  cost->seconds = ThreadSeconds() - begin;
  const uint64_t peak = PeakBytes();
  cost->bytes = peak > before ? peak - before : 0;
  return result;
}

}  // namespace strata::testing

#endif  // STRATA_TESTS_COST_H_
