// What a step takes on a stage, and how that is learnt.
#ifndef STRATA_COORDINATOR_ENGINE_STAGE_COST_H_
#define STRATA_COORDINATOR_ENGINE_STAGE_COST_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace strata {

// What a step asks of every stage.
struct StepWork {
  uint32_t rows = 0;
  double attended = 0;  // Positions that its rows look at, summed over them.
};

// And what of it a stage computes for a slice of a wave (layer_waves.h).
struct SliceWork {
  uint32_t stage = 0;
  StepWork work;
  double share = 1;    // Of its layers.
  bool heads = false;  // And the head, for some rows.
};

// Positions that `rows` rows from `position` on look at.
inline double Attended(uint32_t position, uint32_t rows) {
  return static_cast<double>(rows) * (position + 0.5 * (rows + 1.0));
}

// A line through the times of 1, 2, 4 ... rows, and a time for each attended position. One line for
// all would not do: few rows take what the weights take to be read, many what the arithmetic takes,
// and it is between the two that chunks of prompts ride beside answers.
struct StageCost {
  static constexpr size_t kKnots = 12;

  // Of 2^i rows; no less than that of fewer.
  std::array<double, kKnots> ms{};
  double attended_ms = 0;
  // How sure that is: of the logarithms of `ms` the variances, the covariances with the next one
  // and with attended_ms'; and attended_ms' own variance.
  struct Doubt {
    std::array<double, kKnots> own{};
    std::array<double, kKnots> with_next{};
    std::array<double, kKnots> with_attended{};
    double attended = 0;
  };
  Doubt doubt;

  static StageCost Line(double fixed_ms, double row_ms, double attended_ms = 0);
  // 0 for no rows.
  double Ms(const StepWork& work) const;
  // What it may well turn out to be: less by a standard deviation of its logarithm, or by what that
  // has beyond `usual`.
  double HopefulMs(const StepWork& work, double usual = 0) const;
};

// Learns a StageCost from steps: an extended Kalman filter over the logarithms of its 13 numbers.
// Times of neighbouring row counts are taken to be alike, and all to change together, so that one
// step tells about the others as well; what was long not seen becomes uncertain again. One thread.
class StageFit {
 public:
  // `row_ms`: of one row, by the plan; 0: not known.
  explicit StageFit(double row_ms);

  // work.rows > 0; ms >= 0.
  void Observe(const StepWork& work, double ms);
  // As if `steps` had passed since the newest one that was observed.
  void Age(uint32_t steps);
  // What this one tells of steps of another kind, as long as none of them was observed.
  StageFit OfAnotherKind() const;
  const StageCost& Cost() const { return cost_; }
  // There was a plan or a step to learn from.
  bool known() const { return known_; }

 private:
  static constexpr size_t kSize = StageCost::kKnots + 1;  // The last: per attended position.
  using Vector = std::array<double, kSize>;

  Vector Parts(const StepWork& work) const;
  void Widen(double share);
  void Refresh();

  Vector log_ms_{};
  std::array<Vector, kSize> covariance_{};
  StageCost cost_;
  bool known_ = false;
  bool observed_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_STAGE_COST_H_
