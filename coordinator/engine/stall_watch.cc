#include "coordinator/engine/stall_watch.h"

#include <algorithm>
#include <cmath>

namespace strata {
namespace {

// What is expected of a step is a median of noisy machines, and a step may wait for another model.
constexpr double kTimesExpected = 4;
// Before this many steps what is expected is the plan's guess, and weights come from the disk.
constexpr uint64_t kStepsUntilKnown = 8;
constexpr uint32_t kMostWidened = 8;
constexpr uint32_t kStepsUntilCalm = 256;

}  // namespace

StallWatch::StallWatch(nanoseconds least, nanoseconds most) : least_(least), most_(most) {}

void StallWatch::Begin() {
  committed_ = 0;
  in_a_row_ = 0;
}

void StallWatch::NoteCommitted() {
  ++committed_;
  if (in_a_row_ > 0) {  // It was slow, and no more than that.
    in_a_row_ = 0;
    widened_ = std::min(kMostWidened, widened_ * 2);
    calm_ = 0;
  } else if (widened_ > 1 && ++calm_ >= kStepsUntilCalm) {
    widened_ /= 2;
    calm_ = 0;
  }
}

void StallWatch::NoteStall() { ++in_a_row_; }

nanoseconds StallWatch::Patience(double expected_ms) const {
  if (least_.count() == 0 || committed_ < kStepsUntilKnown || GoesOn() ||
      !std::isfinite(expected_ms) || expected_ms < 0) {
    return most_;
  }
  const double ms = std::max(ToMs(least_), kTimesExpected * expected_ms) * widened_;
  return ms >= ToMs(most_) ? most_ : nanoseconds(static_cast<int64_t>(ms * 1e6));
}

}  // namespace strata
