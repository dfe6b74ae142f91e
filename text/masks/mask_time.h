// What the masks of one answer may take of a processor: a grammar in which a text can be read in
// many ways compiles quickly and makes each mask slowly.
#ifndef STRATA_TEXT_MASKS_MASK_TIME_H_
#define STRATA_TEXT_MASKS_MASK_TIME_H_

#include "absl/status/status.h"
#include "common/clock.h"

namespace strata {

struct MaskTimeLimits {
  // Where one may take so long: all of an answer twice that, and 5 ms for each.
  static MaskTimeLimits OfOne(nanoseconds one) { return {.one = one, .all = 2 * one}; }

  nanoseconds one = std::chrono::seconds(1);
  // All of an answer: so much, and so much more for each.
  nanoseconds all = std::chrono::seconds(2);
  nanoseconds each = milliseconds(5);
};

// Of one answer.
class MaskTime {
 public:
  explicit MaskTime(MaskTimeLimits limits = {}) : limits_(limits) {}
  // One more mask took so long. GRAMMAR_TOO_EXPENSIVE beyond a limit.
  absl::Status Add(nanoseconds time);

 private:
  const MaskTimeLimits limits_;
  nanoseconds left_ = limits_.all;
};

// What the calling thread has had of a processor.
nanoseconds ThreadTime();

}  // namespace strata

#endif  // STRATA_TEXT_MASKS_MASK_TIME_H_
