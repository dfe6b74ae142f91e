#include "coordinator/engine/step_timing.h"

#include <algorithm>
#include <cmath>

namespace strata {
namespace {

constexpr uint32_t kFirstRows = 32;
constexpr double kMostMs = 1e7;
constexpr size_t kHopsKept = 256;
constexpr uint32_t kStepsToAge = 32;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace

StepTiming::StepTiming(const std::vector<double>& predicted_ms, nanoseconds step_timeout,
                       uint32_t max_rows)
    : target_ms_(ToMs(step_timeout) / 8), max_rows_(std::max(1u, max_rows)) {
  double slowest = 0;
  for (double ms : predicted_ms) {
    const StageFit planned(std::isfinite(ms) && ms > 0 ? ms : 0);
    stages_.push_back({.fits = {planned, planned}});
    slowest = std::max(slowest, std::isfinite(ms) ? ms : 0);
  }
  const double rows = slowest > 0 ? target_ms_ / slowest : kFirstRows;
  first_rows_ = static_cast<uint32_t>(std::clamp<double>(rows, 1, max_rows_));
}

void StepTiming::Observe(uint32_t stage, const StepWork& work, double compute_ms, bool alone) {
  if (stage >= stages_.size() || work.rows == 0 || !(compute_ms >= 0 && compute_ms < kMostMs)) {
    return;
  }
  Stage& seen = stages_[stage];
  const Kind kind = alone && stages_.size() > 1 ? kAlone : kBesideOthers;
  const Kind other = kind == kAlone ? kBesideOthers : kAlone;
  seen.fits[kind].Observe(work, compute_ms);
  seen.observed[kind] = true;
  seen.unseen[kind] = 0;
  if (!seen.observed[other]) {
    seen.fits[other] = seen.fits[kind].OfAnotherKind();
  } else if (++seen.unseen[other] >= kStepsToAge) {
    seen.fits[other].Age(seen.unseen[other]);
    seen.unseen[other] = 0;
  }
  most_rows_seen_ = std::max(most_rows_seen_, work.rows);
}

void StepTiming::Observe(uint32_t stage, const StepWork& work, std::span<const SliceWork> slices,
                         double compute_ms, bool alone) {
  const auto here = [stage](const SliceWork& slice) { return slice.stage == stage; };
  const auto slice = std::find_if(slices.begin(), slices.end(), here);
  if (slice == slices.end()) {
    Observe(stage, work, compute_ms, alone);
    return;
  }
  const bool nothing_else = work.rows == 0 && std::none_of(slice + 1, slices.end(), here);
  if (nothing_else && (slice->share == 1 || !slice->heads)) {
    Observe(stage, slice->work, compute_ms / slice->share, alone);
  }
}

void StepTiming::ObserveRoundTrip(double round_trip_ms, double compute_ms) {
  const double hop_ms = (round_trip_ms - compute_ms) / static_cast<double>(stages_.size() + 1);
  if (!(hop_ms >= 0 && hop_ms < kMostMs)) {
    return;
  }
  hops_ms_.push_back(hop_ms);
  if (hops_ms_.size() > kHopsKept) {
    hops_ms_.pop_front();
  }
  hop_ms_ = Median({hops_ms_.begin(), hops_ms_.end()});
}

std::vector<StageCost> StepTiming::CostsOf(Kind kind) const {
  std::vector<StageCost> costs;
  for (const Stage& stage : stages_) {
    const StageFit& fit = stage.fits[kind];
    if (!fit.known()) {
      return {};
    }
    costs.push_back(fit.Cost());
  }
  return costs;
}

std::vector<StageCost> StepTiming::CostsAlone() const {
  return stages_.size() > 1 ? CostsOf(kAlone) : std::vector<StageCost>();
}

double StepTiming::ExpectedMs(const StepWork& work, std::span<const SliceWork> slices) const {
  const std::vector<StageCost> costs = Costs();
  if (costs.size() != stages_.size()) {
    return -1;
  }
  double ms = hop_ms_ * static_cast<double>(stages_.size() + 1);
  for (const StageCost& cost : costs) {
    ms += cost.Ms(work);
  }
  for (const SliceWork& slice : slices) {
    if (slice.stage < costs.size()) {
      ms += costs[slice.stage].Ms(slice.work) * slice.share;
    }
  }
  return ms;
}

uint32_t StepTiming::TokenBudget() const {
  if (most_rows_seen_ == 0) {
    return first_rows_;
  }
  uint32_t budget = static_cast<uint32_t>(
      std::min<uint64_t>(max_rows_, std::max<uint64_t>(kFirstRows, uint64_t{4} * most_rows_seen_)));
  for (const Stage& stage : stages_) {
    const StageFit& fit = stage.fits[kBesideOthers];
    if (!fit.known()) {
      continue;
    }
    const StageCost& cost = fit.Cost();
    uint32_t fits = 1;
    while (fits < budget) {
      const uint32_t rows = fits + (budget - fits + 1) / 2;
      if (cost.Ms({.rows = rows}) <= target_ms_) {
        fits = rows;
      } else {
        budget = rows - 1;
      }
    }
  }
  return std::max(1u, budget);
}

}  // namespace strata
