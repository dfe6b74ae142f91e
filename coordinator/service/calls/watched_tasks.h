// Tasks that may hang where nothing can end them, as those that read from a disk that hangs.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_WATCHED_TASKS_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_WATCHED_TASKS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "common/mutex.h"

namespace strata {

// Any thread.
class WatchedTasks {
 public:
  // What a task says of how far it is, on its thread. False once nobody waits for it: it is to end
  // as soon as it can, and to leave nothing behind.
  using Report = std::function<bool(uint64_t done, uint64_t total)>;
  using Task = std::function<absl::Status(const Report& report)>;

  WatchedTasks() = default;
  ~WatchedTasks();  // Waits for those that nobody waits for.
  WatchedTasks(const WatchedTasks&) = delete;
  WatchedTasks& operator=(const WatchedTasks&) = delete;

  // Runs `task` on a thread of its own, and `said` on this one with the newest of what it reports.
  // What the task gives; or `stalled` once it has reported nothing for `limit`. Then it may still
  // use what it was given, until its end.
  absl::Status Run(std::chrono::nanoseconds limit, const Task& task,
                   const std::function<void(uint64_t done, uint64_t total)>& said,
                   const absl::Status& stalled);

 private:
  struct Running;

  Mutex mutex_;
  std::list<std::pair<std::shared_ptr<Running>, std::thread>> left_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_WATCHED_TASKS_H_
