#include "coordinator/service/event_loop.h"

#include <algorithm>

namespace strata {
namespace {
// The loop looks at its timers at least this often.
constexpr nanoseconds kLongestWait = std::chrono::milliseconds(100);
}  // namespace

EventLoop::EventLoop(const Clock* clock, TickFn tick) : clock_(clock), tick_(std::move(tick)) {}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Start() {
  {
    MutexLock lock(&mutex_);
    running_ = true;
  }
  thread_ = std::thread([this] { Run(); });
}

void EventLoop::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

bool EventLoop::Post(std::function<void()> task) {
  MutexLock lock(&mutex_);
  if (!running_ || stopping_) {
    return false;
  }
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) {
    wake_.NotifyOne();
  }
  return true;
}

void EventLoop::Run() {
  std::optional<TimePoint> next;
  while (true) {
    std::deque<std::function<void()>> tasks;
    bool stopping = false;
    {
      MutexLock lock(&mutex_);
      while (tasks_.empty() && !stopping_) {
        const TimePoint now = clock_->Now();
        if (next.has_value() && *next <= now) {
          break;
        }
        const nanoseconds wait =
            next.has_value() ? std::min<nanoseconds>(kLongestWait, *next - now) : kLongestWait;
        if (!wake_.WaitFor(&mutex_, wait)) {
          break;
        }
      }
      tasks.swap(tasks_);
      stopping = stopping_;
    }
    for (auto& task : tasks) {
      task();
    }
    if (stopping) {
      return;
    }
    next = tick_(clock_->Now());
  }
}

}  // namespace strata
