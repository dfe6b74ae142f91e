// A request to stop that long work asks about and waits on.
#ifndef STRATA_WORKER_WEIGHTS_CANCELLATION_H_
#define STRATA_WORKER_WEIGHTS_CANCELLATION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "common/mutex.h"

namespace strata {

// Any thread.
class Cancellation {
 public:
  void Cancel() STRATA_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    changed_.NotifyAll();
    for (const auto& [id, wake] : wakers_) {
      wake();
    }
  }

  bool cancelled() const STRATA_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return cancelled_;
  }

  // Sleeps. True as soon as it is cancelled.
  bool WaitFor(std::chrono::nanoseconds duration) STRATA_EXCLUDES(mutex_) {
    const auto deadline = std::chrono::steady_clock::now() + duration;
    MutexLock lock(&mutex_);
    while (!cancelled_) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds(0)) {
        return false;
      }
      changed_.WaitFor(&mutex_, left);
    }
    return true;
  }

  // While it lives, `wake` is called on Cancel, or at once if that has happened. `wake` must not
  // call this object.
  class Waker {
   public:
    Waker(Cancellation* owner, std::function<void()> wake) : owner_(owner) {
      MutexLock lock(&owner_->mutex_);
      if (owner_->cancelled_) {
        wake();
      }
      id_ = owner_->next_id_++;
      owner_->wakers_[id_] = std::move(wake);
    }
    ~Waker() {
      MutexLock lock(&owner_->mutex_);
      owner_->wakers_.erase(id_);
    }
    Waker(const Waker&) = delete;
    Waker& operator=(const Waker&) = delete;

   private:
    Cancellation* const owner_;
    uint64_t id_ = 0;
  };

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool cancelled_ STRATA_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ STRATA_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::function<void()>> wakers_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_WORKER_WEIGHTS_CANCELLATION_H_
