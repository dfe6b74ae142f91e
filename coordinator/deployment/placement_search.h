// When a model whose nodes are not all there is to be placed on others.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_PLACEMENT_SEARCH_H_
#define STRATA_COORDINATOR_DEPLOYMENT_PLACEMENT_SEARCH_H_

#include <optional>

#include "absl/status/status.h"
#include "common/clock.h"

namespace strata {

// A core: one thread.
class PlacementSearch {
 public:
  // A search that found nothing is begun again after `again_after`.
  explicit PlacementSearch(nanoseconds again_after) : again_after_(again_after) {}

  // Other nodes are wanted from `at` on, unless they are already wanted sooner.
  void Want(TimePoint at);
  // The cluster has changed: what found nothing before is tried at once.
  void Hasten(TimePoint now);
  // It waits for no nodes any more.
  void End();

  // Whether somebody is to look for nodes now.
  bool Due(TimePoint now) const { return !asked_ && at_.has_value() && now >= *at_; }
  // Somebody looks, until Failed or End.
  void Asked() { asked_ = true; }
  bool asked() const { return asked_; }
  // Whether other nodes are wanted, now or later.
  bool wanted() const { return at_.has_value(); }
  // There are none, because of `why`.
  void Failed(const absl::Status& why, TimePoint now);

  // Why the newest search found nothing; ok: none has ended so since End.
  const absl::Status& problem() const { return problem_; }
  // When Due comes true.
  std::optional<TimePoint> NextWake() const { return asked_ ? std::nullopt : at_; }

 private:
  const nanoseconds again_after_;
  std::optional<TimePoint> at_;
  bool asked_ = false;
  absl::Status problem_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_PLACEMENT_SEARCH_H_
