#include "coordinator/engine/step_timing.h"

#include <algorithm>
#include <cmath>

namespace strata {
namespace {

constexpr double kDecay = 0.95;
constexpr uint32_t kFirstRows = 32;
constexpr double kMostMs = 1e7;
constexpr size_t kHopsKept = 256;

}  // namespace

StepTiming::StepTiming(const std::vector<double>& predicted_ms, nanoseconds step_timeout,
                       uint32_t max_rows)
    : target_ms_(ToMs(step_timeout) / 8), max_rows_(std::max(1u, max_rows)) {
  for (double ms : predicted_ms) {
    fits_.push_back({.predicted_ms = std::isfinite(ms) && ms > 0 ? ms : 0});
  }
}

void StepTiming::Observe(uint32_t stage, uint32_t rows, double compute_ms) {
  if (stage >= fits_.size() || rows == 0 || !(compute_ms >= 0 && compute_ms < kMostMs)) {
    return;
  }
  Fit& fit = fits_[stage];
  const double x = rows;
  fit.weight = fit.weight * kDecay + 1;
  fit.x = fit.x * kDecay + x;
  fit.y = fit.y * kDecay + compute_ms;
  fit.xx = fit.xx * kDecay + x * x;
  fit.xy = fit.xy * kDecay + x * compute_ms;
  most_rows_seen_ = std::max(most_rows_seen_, rows);
}

void StepTiming::ObserveRoundTrip(double round_trip_ms, double compute_ms) {
  const double hop_ms = (round_trip_ms - compute_ms) / static_cast<double>(fits_.size() + 1);
  if (!(hop_ms >= 0 && hop_ms < kMostMs)) {
    return;
  }
  hops_ms_.push_back(hop_ms);
  if (hops_ms_.size() > kHopsKept) {
    hops_ms_.pop_front();
  }
}

double StepTiming::HopMs() const {
  if (hops_ms_.empty()) {
    return 0;
  }
  std::vector<double> hops(hops_ms_.begin(), hops_ms_.end());
  std::nth_element(hops.begin(), hops.begin() + hops.size() / 2, hops.end());
  return hops[hops.size() / 2];
}

StepTiming::Line StepTiming::LineOf(const Fit& fit) {
  if (fit.weight == 0) {
    return {0, fit.predicted_ms};  // Too high for many rows, which read the weights once.
  }
  const double mean_x = fit.x / fit.weight;
  const double mean_y = fit.y / fit.weight;
  const double variance = fit.xx / fit.weight - mean_x * mean_x;
  if (variance > 0.5) {
    const double slope = (fit.xy / fit.weight - mean_x * mean_y) / variance;
    const double fixed = mean_y - slope * mean_x;
    if (slope >= 0 && fixed >= 0) {
      return {fixed, slope};
    }
  }
  return {0, mean_y / mean_x};
}

double StepTiming::PredictMs(uint32_t stage, uint32_t rows) const {
  const Line line = LineOf(fits_[stage]);
  return line.fixed_ms + line.row_ms * rows;
}

uint32_t StepTiming::TokenBudget() const {
  double budget = max_rows_;
  bool known = false;
  for (const Fit& fit : fits_) {
    const Line line = LineOf(fit);
    known = known || fit.predicted_ms > 0;
    if (line.row_ms > 0) {
      budget = std::min(budget, (target_ms_ - line.fixed_ms) / line.row_ms);
    }
  }
  if (most_rows_seen_ > 0 || !known) {
    budget = std::min(budget, std::max<double>(kFirstRows, 4.0 * most_rows_seen_));
  }
  return static_cast<uint32_t>(std::max(1.0, budget));
}

}  // namespace strata
