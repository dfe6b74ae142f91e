#include "coordinator/deployment/better_search.h"

#include <algorithm>

namespace strata {
namespace {

constexpr int kMostTimes = 64;   // Of the first delay.
constexpr int kQuietTimes = 16;  // Of the delay at hand.
constexpr int kMostPostponed = 3;

}  // namespace

nanoseconds BetterSearch::Delay(TimePoint now) const {
  const bool quiet = !moved_.has_value() || now - *moved_ >= kQuietTimes * delay_;
  return quiet ? first_ : delay_;
}

void BetterSearch::OnNodes(TimePoint now) {
  if (first_ > nanoseconds(0)) {
    // Those that come last count: they are measured when the search begins.
    at_ = now + Delay(now);
  }
}

void BetterSearch::Asked() {
  asked_ = true;
  at_.reset();
}

bool BetterSearch::Postpone(TimePoint now) {
  if (postponed_ >= kMostPostponed) {
    return false;
  }
  asked_ = false;
  ++postponed_;
  at_ = now + Delay(now);
  return true;
}

void BetterSearch::Moves(TimePoint now) {
  End();
  delay_ = std::min(2 * Delay(now), kMostTimes * first_);
  moved_ = now;
}

}  // namespace strata
