// How long a pipeline may give no sign of life until it is held to be stalled: by a link that
// carries nothing between nodes that live, or by a node that hangs.
#ifndef STRATA_COORDINATOR_ENGINE_STALL_WATCH_H_
#define STRATA_COORDINATOR_ENGINE_STALL_WATCH_H_

#include <cstdint>

#include "common/clock.h"
#include "coordinator/engine/stall_policy.h"

namespace strata {

// The patience follows from what steps take: several times that, but no less than `least` and no
// more than `most`. From the second stall in a row on it is `most`: what got slower is given the
// time that it has without this. A stall that turns out to be none makes it longer for a while, so
// that a slow machine is not fenced again and again. One thread.
class StallWatch {
 public:
  // `least` of 0: the patience is always `most`, the step timeout.
  StallWatch(nanoseconds least, nanoseconds most);

  // Other stages, or the same ones loaded anew: what their steps take is not known yet.
  void Begin();
  // A step with rows was committed.
  void NoteCommitted();
  // The patience is over: no step came back, or a fence was not acknowledged.
  void NoteStall();

  // For what is expected to take `expected_ms`, and then gives a sign of life.
  nanoseconds Patience(double expected_ms) const;
  // Whether it has stalled so often without a step in between that new links do not help.
  bool GoesOn() const { return stall_policy::GoesOn(in_a_row_); }

 private:
  const nanoseconds least_;
  const nanoseconds most_;
  uint64_t committed_ = 0;  // Steps since Begin.
  int in_a_row_ = 0;        // Stalls since a step was committed.
  uint32_t widened_ = 1;    // By false alarms: 1, 2, 4, 8.
  uint32_t calm_ = 0;       // Steps since it was widened or narrowed.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_STALL_WATCH_H_
