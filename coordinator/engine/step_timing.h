// What steps take: how many rows one may have, and what its way from stage to stage costs.
#ifndef STRATA_COORDINATOR_ENGINE_STEP_TIMING_H_
#define STRATA_COORDINATOR_ENGINE_STEP_TIMING_H_

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "common/clock.h"
#include "coordinator/engine/stage_cost.h"

namespace strata {

// Learns what each stage takes for a step from those that were committed. One thread.
class StepTiming {
 public:
  // `predicted_ms`: one token through each stage, by the plan; 0: not known.
  StepTiming(const std::vector<double>& predicted_ms, nanoseconds step_timeout, uint32_t max_rows);

  // A committed step of `work.rows` > 0 took this long on `stage`; while it was under way others
  // were too, or it was alone. Values that are no time are ignored.
  void Observe(uint32_t stage, const StepWork& work, double compute_ms, bool alone);

  // The same of a step with slices too; `work` is of what is not in them. What some layers took
  // tells what all of them take, where the stage had nothing else to do; a head is no layer.
  void Observe(uint32_t stage, const StepWork& work, std::span<const SliceWork> slices,
               double compute_ms, bool alone);

  // Rows of a step such that the slowest stage is done within step_timeout / 8; 1..max_rows. At
  // first what the plan promises if every row takes as long as one alone, then at most four times
  // what was ever seen, so that a guess is not a leap.
  uint32_t TokenBudget() const;

  // What a step with this work, and these slices beside it, takes from the first stage to the last,
  // while others are under way; negative as long as nothing is known of a stage.
  double ExpectedMs(const StepWork& work, std::span<const SliceWork> slices) const;

  // What the slowest stage may take for a step.
  double target_ms() const { return target_ms_; }

  // A step that met no other on its way took `round_trip_ms` from the coordinator back to it, of
  // which the stages computed `compute_ms`.
  void ObserveRoundTrip(double round_trip_ms, double compute_ms);

  // What one hop of such a step takes, in milliseconds: from one stage's output to the next one's
  // input; the first and the last hop are the coordinator's, with its own work on results. The
  // median of the newest 256; 0 when there was none.
  double HopMs() const { return hop_ms_; }

  // Of steps beside others, by stage; empty as long as nothing is known of one of them.
  std::vector<StageCost> Costs() const { return CostsOf(kBesideOthers); }

  // The same of steps that are alone in the pipeline. They are the faster where stages share a
  // machine, and so its memory's bandwidth. Empty for one stage, whose steps never meet.
  std::vector<StageCost> CostsAlone() const;

 private:
  enum Kind : uint8_t { kBesideOthers, kAlone };
  struct Stage {
    std::array<StageFit, 2> fits;  // By kind.
    std::array<bool, 2> observed{};
    std::array<uint32_t, 2> unseen{};  // Steps of the other kind since it last aged.
  };

  std::vector<StageCost> CostsOf(Kind kind) const;

  double target_ms_;
  uint32_t max_rows_;
  uint32_t first_rows_;
  std::vector<Stage> stages_;
  uint32_t most_rows_seen_ = 0;
  std::deque<double> hops_ms_;
  double hop_ms_ = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_STEP_TIMING_H_
