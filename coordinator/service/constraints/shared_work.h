// Work that several wait for is done once: who wants what is being made joins those that wait.
#ifndef STRATA_COORDINATOR_SERVICE_CONSTRAINTS_SHARED_WORK_H_
#define STRATA_COORDINATOR_SERVICE_CONSTRAINTS_SHARED_WORK_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"

namespace strata {

// Any thread. What is made is named by a key.
template <typename Made>
class SharedWork {
 public:
  struct Waiter {
    // Whether it is wanted any more. Must not call this.
    std::function<bool()> wanted;
    std::function<void(const absl::StatusOr<Made>&)> next;
  };
  enum class Joined { kFirst, kLater, kFull };

  explicit SharedWork(size_t most_waiters) : most_waiters_(most_waiters) {}

  // kFirst: the caller has it made, and calls End. kFull: as many wait as may.
  Joined Join(const std::string& key, Waiter waiter) {
    const MutexLock lock(&mutex_);
    if (waiting_ >= most_waiters_) {
      return Joined::kFull;
    }
    ++waiting_;
    std::vector<Waiter>& waiters = waiters_[key];
    waiters.push_back(std::move(waiter));
    return waiters.size() == 1 ? Joined::kFirst : Joined::kLater;
  }

  // Whether anyone wants it. If not, all that wait are told `why`, and nothing is to be made.
  bool Wanted(const std::string& key, const absl::Status& why) {
    std::vector<Waiter> unwanted;
    {
      const MutexLock lock(&mutex_);
      for (const Waiter& waiter : waiters_[key]) {
        if (waiter.wanted()) {
          return true;
        }
      }
      unwanted = Take(key);
    }
    Tell(unwanted, why);
    return false;
  }

  // Tells all that wait, on the calling thread.
  void End(const std::string& key, const absl::StatusOr<Made>& made) {
    std::vector<Waiter> waiters;
    {
      const MutexLock lock(&mutex_);
      waiters = Take(key);
    }
    Tell(waiters, made);
  }

 private:
  std::vector<Waiter> Take(const std::string& key) STRATA_REQUIRES(mutex_) {
    auto node = waiters_.extract(key);
    waiting_ -= node.mapped().size();
    return std::move(node.mapped());
  }
  static void Tell(const std::vector<Waiter>& waiters, const absl::StatusOr<Made>& made) {
    for (const Waiter& waiter : waiters) {
      waiter.next(made);
    }
  }

  const size_t most_waiters_;
  Mutex mutex_;
  std::map<std::string, std::vector<Waiter>> waiters_ STRATA_GUARDED_BY(mutex_);
  size_t waiting_ STRATA_GUARDED_BY(mutex_) = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CONSTRAINTS_SHARED_WORK_H_
