#include "common/rpc/call_threads.h"

#include <utility>

#include "common/status.h"

namespace strata {

CallThreads::CallThreads(CallThreadsOptions options) : options_(std::move(options)) {}

CallThreads::~CallThreads() {
  std::list<std::thread> threads;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    threads.swap(threads_);  // From now on none takes itself out of the list.
    if (ended_.joinable()) {
      threads.push_back(std::move(ended_));
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

absl::Status CallThreads::Run(std::function<void()> task) {
  MutexLock lock(&mutex_);
  const size_t calls = running_ + tasks_.size();
  if (calls >= options_.threads + options_.waiting) {
    return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS",
                 std::to_string(calls) + " calls of this kind are under way already")
        .Limit(options_.name + "=" + std::to_string(options_.threads + options_.waiting))
        .Hint(options_.hint);
  }
  tasks_.push_back(std::move(task));
  if (idle_ >= tasks_.size()) {
    changed_.NotifyOne();
  } else if (threads_.size() < options_.threads) {
    ++idle_;
    const Thread thread = threads_.emplace(threads_.end());
    *thread = std::thread([this, thread] { Work(thread); });
  }
  return absl::OkStatus();
}

size_t CallThreads::idle() {
  MutexLock lock(&mutex_);
  return idle_;
}

size_t CallThreads::waiting() {
  MutexLock lock(&mutex_);
  return tasks_.size();
}

void CallThreads::Work(Thread self) {
  std::thread before;
  while (std::function<void()> task = Next(self, &before)) {
    task();
    task = nullptr;  // What it holds ends before the count says so.
    MutexLock lock(&mutex_);
    --running_;
    ++idle_;
  }
  if (before.joinable()) {
    before.join();
  }
}

std::function<void()> CallThreads::Next(Thread self, std::thread* before) {
  MutexLock lock(&mutex_);
  while (tasks_.empty()) {
    if (stopping_) {
      return nullptr;
    }
    if (!changed_.WaitFor(&mutex_, options_.longest_idle) && tasks_.empty() && !stopping_ &&
        idle_ > 1) {
      --idle_;
      *before = std::exchange(ended_, std::move(*self));
      threads_.erase(self);
      return nullptr;
    }
  }
  std::function<void()> task = std::move(tasks_.front());
  tasks_.pop_front();
  --idle_;
  ++running_;
  return task;
}

}  // namespace strata
