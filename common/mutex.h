// std::mutex with Clang's thread-safety annotations. Own code locks with these and not with
// absl::Mutex: Debian's Abseil is not built for TSan, which then sees no happens-before in it.
#ifndef STRATA_COMMON_MUTEX_H_
#define STRATA_COMMON_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define STRATA_ANNOTATE_(x) __attribute__((x))
#else
#define STRATA_ANNOTATE_(x)
#endif
#define STRATA_GUARDED_BY(x) STRATA_ANNOTATE_(guarded_by(x))
#define STRATA_REQUIRES(...) STRATA_ANNOTATE_(requires_capability(__VA_ARGS__))
#define STRATA_EXCLUDES(...) STRATA_ANNOTATE_(locks_excluded(__VA_ARGS__))

namespace strata {

class STRATA_ANNOTATE_(capability("mutex")) Mutex {
 public:
  void Lock() STRATA_ANNOTATE_(acquire_capability()) { mutex_.lock(); }
  bool TryLock() STRATA_ANNOTATE_(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void Unlock() STRATA_ANNOTATE_(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class STRATA_ANNOTATE_(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) STRATA_ANNOTATE_(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() STRATA_ANNOTATE_(release_capability()) { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

class CondVar {
 public:
  void Wait(Mutex* mutex) STRATA_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Whether it was woken before `timeout` passed.
  bool WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout) STRATA_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool woken = condition_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace strata

#endif  // STRATA_COMMON_MUTEX_H_
