#include "coordinator/deployment/placement_search.h"

#include <algorithm>

namespace strata {

void PlacementSearch::Want(TimePoint at) { at_ = std::min(at_.value_or(at), at); }

void PlacementSearch::Hasten(TimePoint now) {
  if (at_.has_value() && !problem_.ok()) {
    at_ = std::min(*at_, now);
  }
}

void PlacementSearch::End() {
  at_.reset();
  asked_ = false;
  problem_ = absl::OkStatus();
}

void PlacementSearch::Failed(const absl::Status& why, TimePoint now) {
  if (!asked_) {
    return;
  }
  asked_ = false;
  problem_ = why;
  at_ = now + again_after_;
}

}  // namespace strata
