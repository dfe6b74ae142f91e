// Time is handed in. The cores see only this; real time lives in SystemClock, simulated time in
// the simulator.
#ifndef STRATA_COMMON_CLOCK_H_
#define STRATA_COMMON_CLOCK_H_

#include <chrono>

namespace strata {

// Monotonic time since an arbitrary start.
using TimePoint = std::chrono::nanoseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// std::chrono::steady_clock. Stateless; any thread.
class SystemClock : public Clock {
 public:
  TimePoint Now() const override {
    return std::chrono::duration_cast<nanoseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
  }
};

inline double ToMs(nanoseconds d) { return static_cast<double>(d.count()) / 1e6; }

}  // namespace strata

#endif  // STRATA_COMMON_CLOCK_H_
