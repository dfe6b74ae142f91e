// How many rows a step may have, from what steps took.
#ifndef STRATA_COORDINATOR_ENGINE_STEP_TIMING_H_
#define STRATA_COORDINATOR_ENGINE_STEP_TIMING_H_

#include <cstdint>
#include <vector>

#include "common/clock.h"

namespace strata {

// Fits compute_ms = a + b * rows per stage by least squares, older steps weighing less. One thread.
class StepTiming {
 public:
  // `predicted_ms`: one token through each stage, by the plan; 0: not known.
  StepTiming(const std::vector<double>& predicted_ms, nanoseconds step_timeout, uint32_t max_rows);

  // A committed step of `rows` > 0 rows took this long on `stage`. Values that are no time are
  // ignored.
  void Observe(uint32_t stage, uint32_t rows, double compute_ms);

  // Rows of a step such that the slowest stage is done within step_timeout / 8; 1..max_rows. At
  // most four times what was ever seen, so that a first guess is not a leap.
  uint32_t TokenBudget() const;

  // Time that a stage takes for `rows` rows, in milliseconds; 0 when nothing is known.
  double PredictMs(uint32_t stage, uint32_t rows) const;

 private:
  struct Fit {
    double predicted_ms = 0;
    double weight = 0, x = 0, y = 0, xx = 0, xy = 0;  // Decayed sums; x rows, y ms.
  };
  struct Line {
    double fixed_ms = 0;
    double row_ms = 0;
  };
  static Line LineOf(const Fit& fit);

  const double target_ms_;
  const uint32_t max_rows_;
  std::vector<Fit> fits_;
  uint32_t most_rows_seen_ = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_STEP_TIMING_H_
