#include "coordinator/engine/stage_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>

namespace strata {
namespace {

// Rows that take as much as reading the weights, before steps tell: few enough that a stage whose
// rows are cheap is given more of them, and so found out.
constexpr double kRowsPerReading = 8;
// Positions whose attention is taken to cost a row's time, before steps tell.
constexpr double kAttendedPerRow = 4096;
// Standard deviations of the logarithms: what all times have in common, what each has of its own
// (half of the variance shared with that of twice as many rows), attention's own; and of one step.
constexpr double kCommon = 0.5;
constexpr double kOwn = 0.7;
constexpr double kOwnAttended = 1.0;
constexpr double kMeasured = 0.15;
// How much of what is known becomes uncertain again with every step.
constexpr double kForgotten = 0.0005;
// And with every one that is of another kind.
constexpr double kAged = 0.0002;
// One step that took far longer than expected says no more than this.
constexpr double kMostSurprise = 0.7;
constexpr double kLeastMs = 1e-3;
constexpr double kLeastVariance = 1e-6;

// Of rows > 0: the knot at or below, and the share of the way to the next one. Beyond the last
// knot the last piece goes on.
struct Place {
  size_t knot = 0;
  double share = 0;
};

Place PlaceOf(uint32_t rows) {
  const auto bits = static_cast<size_t>(std::bit_width(rows)) - 1;
  const size_t knot = std::min(bits, StageCost::kKnots - 2);
  const auto below = static_cast<double>(uint64_t{1} << knot);
  return {knot, (rows - below) / below};
}

using Knots = std::array<double, StageCost::kKnots>;

// Values that fall become their mean, the ones with more weight counting more (pool adjacent
// violators).
void MakeAscending(const Knots& weights, Knots* values) {
  struct Pool {
    double sum = 0, weight = 0;
    size_t knots = 0;
    double mean() const { return sum / weight; }
  };
  std::array<Pool, StageCost::kKnots> pools;
  size_t count = 0;
  for (size_t i = 0; i < values->size(); ++i) {
    pools[count++] = {(*values)[i] * weights[i], weights[i], 1};
    for (; count > 1 && pools[count - 2].mean() > pools[count - 1].mean(); --count) {
      pools[count - 2].sum += pools[count - 1].sum;
      pools[count - 2].weight += pools[count - 1].weight;
      pools[count - 2].knots += pools[count - 1].knots;
    }
  }
  size_t knot = 0;
  for (size_t i = 0; i < count; ++i) {
    for (size_t end = knot + pools[i].knots; knot < end; ++knot) {
      (*values)[knot] = pools[i].mean();
    }
  }
}

}  // namespace

StageCost StageCost::Line(double fixed_ms, double row_ms, double attended_ms) {
  StageCost cost;
  for (size_t i = 0; i < kKnots; ++i) {
    cost.ms[i] = fixed_ms + row_ms * static_cast<double>(uint64_t{1} << i);
  }
  cost.attended_ms = attended_ms;
  return cost;
}

double StageCost::Ms(const StepWork& work) const {
  if (work.rows == 0) {
    return 0;
  }
  const auto [knot, share] = PlaceOf(work.rows);
  return ms[knot] + share * (ms[knot + 1] - ms[knot]) + attended_ms * work.attended;
}

double StageCost::HopefulMs(const StepWork& work, double usual) const {
  if (work.rows == 0) {
    return 0;
  }
  const double total = Ms(work);
  if (total <= 0) {
    return total;
  }
  const auto [knot, share] = PlaceOf(work.rows);
  const double here = std::max(0.0, 1 - share) * ms[knot] / total;
  const double next = share * ms[knot + 1] / total;
  const double attention = attended_ms * work.attended / total;
  const double variance =
      here * here * doubt.own[knot] + next * next * doubt.own[knot + 1] +
      attention * attention * doubt.attended +
      2 * (here * next * doubt.with_next[knot] +
           attention * (here * doubt.with_attended[knot] + next * doubt.with_attended[knot + 1]));
  return total * std::exp(-std::max(0.0, std::sqrt(std::max(0.0, variance)) - usual));
}

StageFit::StageFit(double row_ms) : known_(row_ms > 0) {
  const double ms = known_ ? row_ms : 1;
  for (size_t i = 0; i < StageCost::kKnots; ++i) {
    log_ms_[i] = std::log(ms * (kRowsPerReading + static_cast<double>(uint64_t{1} << i)) /
                          (kRowsPerReading + 1));
  }
  log_ms_.back() = std::log(ms / kRowsPerReading / kAttendedPerRow);
  Widen(1);
  Refresh();
}

// Towards what is known of them before any step.
void StageFit::Widen(double share) {
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t j = 0; j < kSize; ++j) {
      double before = kCommon * kCommon;
      if (i + 1 < kSize && j + 1 < kSize) {
        before += kOwn * kOwn / static_cast<double>(uint64_t{1} << (i > j ? i - j : j - i));
      } else if (i == j) {
        before += kOwnAttended * kOwnAttended;
      }
      covariance_[i][j] += share * (before - covariance_[i][j]);
    }
  }
}

void StageFit::Age(uint32_t steps) {
  Widen(-std::expm1(steps * std::log1p(-kAged)));
  Refresh();
}

StageFit StageFit::OfAnotherKind() const {
  StageFit other = *this;
  other.Widen(1);
  other.Refresh();
  return other;
}

// What each number has in the time of `work`, in milliseconds.
StageFit::Vector StageFit::Parts(const StepWork& work) const {
  Vector parts{};
  const auto [knot, share] = PlaceOf(work.rows);
  // Beyond the last knot the one before it would count less than nothing.
  parts[knot] = std::max(0.0, 1 - share) * std::exp(log_ms_[knot]);
  parts[knot + 1] = share * std::exp(log_ms_[knot + 1]);
  parts.back() = work.attended * std::exp(log_ms_.back());
  return parts;
}

void StageFit::Observe(const StepWork& work, double ms) {
  const Vector parts = Parts(work);
  const double predicted = std::max(kLeastMs, std::accumulate(parts.begin(), parts.end(), 0.0));
  double surprise = std::log(std::max(ms, kLeastMs) / predicted);
  if (!observed_) {  // The first says how fast the stage is.
    for (double& log_ms : log_ms_) {
      log_ms += surprise;
    }
    surprise = 0;
    observed_ = known_ = true;
  }
  Widen(kForgotten);
  Vector gain{};
  double variance = kMeasured * kMeasured;
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t j = 0; j < kSize; ++j) {
      gain[i] += covariance_[i][j] * parts[j] / predicted;
    }
  }
  for (size_t i = 0; i < kSize; ++i) {
    variance += gain[i] * parts[i] / predicted;
  }
  surprise = std::clamp(surprise, -kMostSurprise, kMostSurprise);
  for (size_t i = 0; i < kSize; ++i) {
    log_ms_[i] += gain[i] / variance * surprise;
    for (size_t j = 0; j <= i; ++j) {
      covariance_[i][j] -= gain[i] * gain[j] / variance;
      covariance_[j][i] = covariance_[i][j];
    }
  }
  Refresh();
}

// Where numbers decrease, which they cannot, they become their mean. And where twice the rows would
// take more than two steps, they take less, by as much as they are the less certain: or a leap
// would be taken for a slope, as that from 8 rows to 9 is one where another kernel computes these.
void StageFit::Refresh() {
  Knots weights{};
  Knots ascending{};
  for (size_t i = 0; i < StageCost::kKnots; ++i) {
    weights[i] = 1 / (covariance_[i][i] + kLeastVariance);
    ascending[i] = log_ms_[i];
  }
  MakeAscending(weights, &ascending);
  // What a row takes never grows with their number; its negative logarithm never falls.
  Knots per_row{};
  for (size_t i = 0; i < StageCost::kKnots; ++i) {
    per_row[i] = static_cast<double>(i) * std::numbers::ln2 - ascending[i];
  }
  MakeAscending(weights, &per_row);
  for (size_t i = 0; i < StageCost::kKnots; ++i) {
    const double log_ms = static_cast<double>(i) * std::numbers::ln2 - per_row[i];
    cost_.ms[i] = std::exp(std::min(ascending[i], log_ms));
    cost_.ms[i] = std::max(cost_.ms[i], i == 0 ? 0.0 : cost_.ms[i - 1]);  // But for rounding.
  }
  cost_.attended_ms = std::exp(log_ms_.back());
  for (size_t i = 0; i < StageCost::kKnots; ++i) {
    cost_.doubt.own[i] = covariance_[i][i];
    cost_.doubt.with_next[i] = i + 1 < StageCost::kKnots ? covariance_[i][i + 1] : 0;
    cost_.doubt.with_attended[i] = covariance_[i].back();
  }
  cost_.doubt.attended = covariance_.back().back();
}

}  // namespace strata
