// When a faster placement is looked for, for a model that runs: some time after nodes have come,
// and the later the more often that has moved it.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_BETTER_SEARCH_H_
#define STRATA_COORDINATOR_DEPLOYMENT_BETTER_SEARCH_H_

#include <optional>

#include "common/clock.h"

namespace strata {

// A core: one thread.
class BetterSearch {
 public:
  // `first`: from a node's coming to the search, until the model has moved so; 0: never.
  explicit BetterSearch(nanoseconds first) : first_(first) {}

  // Nodes have come.
  void OnNodes(TimePoint now);
  // Whether somebody is to look for one now.
  bool Due(TimePoint now) const { return !asked_ && at_.has_value() && now >= *at_; }
  // When Due comes true.
  std::optional<TimePoint> NextWake() const { return asked_ ? std::nullopt : at_; }
  // Somebody looks, until End or Moves.
  void Asked();
  bool asked() const { return asked_; }
  // There is none, or the model is changed otherwise.
  void End() {
    asked_ = false;
    postponed_ = 0;
  }
  // There is one, to which it could go only by having its requests wait. It is looked for again
  // after the delay; false after three such times one after the other: it is not to wait for a
  // moment without requests any longer.
  bool Postpone(TimePoint now);
  // There is one, and the model goes there.
  void Moves(TimePoint now);

  // Between nodes' coming and the next search: doubled with each move, 64 times `first` at most,
  // and `first` again once the model has stayed for 16 times as long.
  nanoseconds Delay(TimePoint now) const;

 private:
  const nanoseconds first_;
  nanoseconds delay_{0};            // Since the newest such move.
  std::optional<TimePoint> moved_;  // That one.
  std::optional<TimePoint> at_;
  bool asked_ = false;
  int postponed_ = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_BETTER_SEARCH_H_
