#ifndef STRATA_WORKER_NODE_STEP_WATCH_H_
#define STRATA_WORKER_NODE_STEP_WATCH_H_

#include <cstdint>

#include "common/clock.h"

namespace strata {

// Tells a step that hangs. One thread.
class StepWatch {
 public:
  explicit StepWatch(nanoseconds step_timeout) : step_timeout_(step_timeout) {}

  // Whether the step that is being computed (0: none) has been for longer than the step timeout.
  // `passed`: since the call before; time in which the process was stopped does not count. Says so
  // again after another timeout.
  bool Hangs(uint64_t step, nanoseconds passed) {
    watched_for_ = step != 0 && step == step_ ? watched_for_ + passed : nanoseconds(0);
    step_ = step;
    if (watched_for_ < step_timeout_) {
      return false;
    }
    watched_for_ = nanoseconds(0);
    return true;
  }

 private:
  const nanoseconds step_timeout_;
  uint64_t step_ = 0;
  nanoseconds watched_for_{0};
};

}  // namespace strata

#endif  // STRATA_WORKER_NODE_STEP_WATCH_H_
