// What steps take: how many rows one may have, and what its way from stage to stage costs.
#ifndef STRATA_COORDINATOR_ENGINE_STEP_TIMING_H_
#define STRATA_COORDINATOR_ENGINE_STEP_TIMING_H_

#include <cstdint>
#include <deque>
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

  // A step that met no other on its way took `round_trip_ms` from the coordinator back to it, of
  // which the stages computed `compute_ms`.
  void ObserveRoundTrip(double round_trip_ms, double compute_ms);

  // What one hop of such a step takes, in milliseconds: from one stage's output to the next one's
  // input; the first and the last hop are the coordinator's, with its own work on results. The
  // median of the newest 256; 0 when there was none.
  double HopMs() const;

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
  std::deque<double> hops_ms_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_STEP_TIMING_H_
