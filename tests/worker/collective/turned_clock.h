// Time of the tests of collectives, whose ranks wait on several threads.
#ifndef STRATA_TESTS_WORKER_COLLECTIVE_TURNED_CLOCK_H_
#define STRATA_TESTS_WORKER_COLLECTIVE_TURNED_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "common/clock.h"

namespace strata {

// Stands still until it is turned.
class TurnedClock : public Clock {
 public:
  TimePoint Now() const override { return nanoseconds(now_ns_.load()); }
  void Turn(nanoseconds by) { now_ns_.fetch_add(by.count()); }

 private:
  std::atomic<int64_t> now_ns_{0};
};

}  // namespace strata

#endif  // STRATA_TESTS_WORKER_COLLECTIVE_TURNED_CLOCK_H_
