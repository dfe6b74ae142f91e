#include "coordinator/service/calls/watched_tasks.h"

#include <optional>
#include <utility>

namespace strata {

struct WatchedTasks::Running {
  using Clock = std::chrono::steady_clock;

  Mutex mutex;
  CondVar changed;
  Clock::time_point last STRATA_GUARDED_BY(mutex) = Clock::now();  // When it last said something.
  std::optional<std::pair<uint64_t, uint64_t>> newest STRATA_GUARDED_BY(mutex);
  bool wanted STRATA_GUARDED_BY(mutex) = true;
  std::optional<absl::Status> ended STRATA_GUARDED_BY(mutex);
};

WatchedTasks::~WatchedTasks() {
  MutexLock lock(&mutex_);
  for (auto& [running, thread] : left_) {
    thread.join();
  }
}

absl::Status WatchedTasks::Run(std::chrono::nanoseconds limit, const Task& task,
                               const std::function<void(uint64_t done, uint64_t total)>& said,
                               const absl::Status& stalled) {
  {
    MutexLock lock(&mutex_);
    left_.remove_if([](auto& left) {
      MutexLock look(&left.first->mutex);
      if (left.first->ended.has_value()) left.second.join();
      return !left.second.joinable();
    });
  }
  const auto running = std::make_shared<Running>();
  std::thread thread([running, task] {
    const absl::Status status = task([&](uint64_t done, uint64_t total) {
      MutexLock lock(&running->mutex);
      running->last = Running::Clock::now();
      running->newest = {done, total};
      running->changed.NotifyAll();
      return running->wanted;
    });
    MutexLock lock(&running->mutex);
    running->ended = status;
    running->changed.NotifyAll();
  });
  while (true) {
    std::optional<std::pair<uint64_t, uint64_t>> news;
    {
      MutexLock lock(&running->mutex);
      const auto left = running->last + limit - Running::Clock::now();
      if (running->ended.has_value() || (!running->newest.has_value() && left.count() <= 0)) {
        running->wanted = false;
        break;
      }
      if (!running->newest.has_value()) {
        running->changed.WaitFor(&running->mutex, left);
      }
      news = std::exchange(running->newest, std::nullopt);
    }
    if (news.has_value()) said(news->first, news->second);
  }
  // Looked at first: mutex_ is taken before a task's own mutex, never behind it.
  bool ended = false;
  {
    MutexLock lock(&running->mutex);
    ended = running->ended.has_value();
  }
  if (!ended) {
    MutexLock lock(&mutex_);
    left_.emplace_back(running, std::move(thread));
    return stalled;
  }
  thread.join();
  MutexLock lock(&running->mutex);
  return *running->ended;
}

}  // namespace strata
