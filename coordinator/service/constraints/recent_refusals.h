// What was refused a while ago is refused again, without the work that it took.
#ifndef STRATA_COORDINATOR_SERVICE_CONSTRAINTS_RECENT_REFUSALS_H_
#define STRATA_COORDINATOR_SERVICE_CONSTRAINTS_RECENT_REFUSALS_H_

#include <cstddef>
#include <list>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/clock.h"

namespace strata {

// One thread at a time.
class RecentRefusals {
 public:
  static constexpr size_t kMost = 256;
  static constexpr nanoseconds kFor = std::chrono::seconds(60);

  // Nothing where it is refused already.
  void Add(const std::string& key, const absl::Status& why, TimePoint now) {
    if (!Find(key, now).ok()) {
      return;
    }
    if (refusals_.size() >= kMost) {
      refusals_.pop_front();
    }
    refusals_.push_back({key, why, now + kFor});
  }

  // Ok where there is none.
  absl::Status Find(const std::string& key, TimePoint now) {
    while (!refusals_.empty() && now >= refusals_.front().until) {
      refusals_.pop_front();
    }
    for (const Refusal& refusal : refusals_) {
      if (refusal.key == key) {
        return refusal.why;
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Refusal {
    std::string key;
    absl::Status why;
    TimePoint until;
  };
  std::list<Refusal> refusals_;  // The oldest first.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CONSTRAINTS_RECENT_REFUSALS_H_
