// Threads for what waits for a disk or for another machine, which the event loop must not.
#ifndef STRATA_COORDINATOR_SERVICE_LOOP_BLOCKING_TASKS_H_
#define STRATA_COORDINATOR_SERVICE_LOOP_BLOCKING_TASKS_H_

#include <functional>
#include <thread>
#include <utility>

#include "common/mutex.h"

namespace strata {

// Any thread.
class BlockingTasks {
 public:
  BlockingTasks() = default;
  ~BlockingTasks() { Wait(); }
  BlockingTasks(const BlockingTasks&) = delete;
  BlockingTasks& operator=(const BlockingTasks&) = delete;

  // Runs `task` on a thread of its own.
  void Run(std::function<void()> task) {
    {
      MutexLock lock(&mutex_);
      ++running_;
    }
    std::thread([this, task = std::move(task)]() mutable {
      task();
      task = nullptr;  // What it holds ends before the count says so.
      MutexLock lock(&mutex_);
      --running_;
      ended_.NotifyAll();
    }).detach();
  }

  // Until all tasks have ended, also those that tasks begin meanwhile.
  void Wait() {
    MutexLock lock(&mutex_);
    while (running_ > 0) {
      ended_.Wait(&mutex_);
    }
  }

 private:
  Mutex mutex_;
  CondVar ended_;
  int running_ STRATA_GUARDED_BY(mutex_) = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_LOOP_BLOCKING_TASKS_H_
