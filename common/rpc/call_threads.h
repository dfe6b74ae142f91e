// Threads for calls that wait: a server's loop must not.
#ifndef STRATA_COMMON_RPC_CALL_THREADS_H_
#define STRATA_COMMON_RPC_CALL_THREADS_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/mutex.h"

namespace strata {

struct CallThreadsOptions {
  size_t threads = 16;  // Calls that run at once.
  size_t waiting = 0;   // Calls that may wait for one of these to end.
  // Of the error when there are more: whose limit it is, as in "admin_calls", and what to do.
  std::string name = "calls";
  std::string hint = "try again in a moment";
  // A thread that finds nothing to do for this long ends, but for the last one.
  std::chrono::milliseconds longest_idle{10'000};
};

// Any thread. Threads are made as they are needed.
class CallThreads {
 public:
  explicit CallThreads(CallThreadsOptions options);
  ~CallThreads();  // Waits until all that was taken has run.
  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

  // Has a thread run `task`, and does not wait for it; those that wait begin in the order of these
  // calls. RESOURCE_EXHAUSTED (TOO_MANY_CALLS) when as many run and wait as may.
  absl::Status Run(std::function<void()> task);

  size_t idle();     // Threads that look or wait for a task.
  size_t waiting();  // Tasks that no thread has taken yet.

 private:
  using Thread = std::list<std::thread>::iterator;

  void Work(Thread self);
  // The next task, or null when `self` is to end, after joining `before`.
  std::function<void()> Next(Thread self, std::thread* before);

  const CallThreadsOptions options_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ STRATA_GUARDED_BY(mutex_);
  size_t running_ STRATA_GUARDED_BY(mutex_) = 0;
  size_t idle_ STRATA_GUARDED_BY(mutex_) = 0;  // Threads that look for a task.
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::list<std::thread> threads_ STRATA_GUARDED_BY(mutex_);
  std::thread ended_ STRATA_GUARDED_BY(mutex_);  // The newest that ended, which the next joins.
};

}  // namespace strata

#endif  // STRATA_COMMON_RPC_CALL_THREADS_H_
