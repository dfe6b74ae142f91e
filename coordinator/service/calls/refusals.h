// Who was refused lately: by this `strata doctor` tells of machines that never became members.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_REFUSALS_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_REFUSALS_H_

#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "strata/v1/diagnosis.pb.h"

namespace strata {

// Any thread. Does not wait.
class Refusals {
 public:
  // Of so many the newest is kept, for so long.
  static constexpr size_t kMost = 64;
  static constexpr std::chrono::minutes kKept{2};

  // `node` as it called itself, "" where it did not come to that; `address` that it advertises, or
  // called from. Takes the place of what was said of the same one before.
  void Add(const std::string& node, const std::string& address, const absl::Status& why);
  std::vector<v1::RefusedFacts> Recent();

 private:
  struct Refusal {
    v1::RefusedFacts facts;
    std::chrono::steady_clock::time_point at;
  };

  Mutex mutex_;
  std::deque<Refusal> refusals_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_REFUSALS_H_
