#include "coordinator/service/event_loop.h"

#include <algorithm>
#include <string>

#include "common/status.h"
#include "coordinator/service/errors.h"

namespace strata {
namespace {
// The loop looks at its timers at least this often.
constexpr nanoseconds kLongestWait = std::chrono::milliseconds(100);
}  // namespace

EventLoop::EventLoop(const Clock* clock, TickFn tick, size_t max_calls)
    : clock_(clock), tick_(std::move(tick)), max_calls_(max_calls) {}

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
  Push({std::move(task), false});
  return true;
}

absl::Status EventLoop::Offer(std::function<void()> task) {
  MutexLock lock(&mutex_);
  if (!running_ || stopping_) {
    return Stopping();
  }
  if (calls_ >= max_calls_) {
    return Error(absl::StatusCode::kResourceExhausted, "OVERLOADED",
                 "the coordinator is overloaded: " + std::to_string(calls_) + " calls wait already")
        .Limit("waiting_calls=" + std::to_string(max_calls_))
        .Hint("try again in a moment, or raise --max-waiting-calls of strata-coordinator");
  }
  ++calls_;
  Push({std::move(task), true});
  return absl::OkStatus();
}

void EventLoop::Push(Task task) {
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) {
    wake_.NotifyOne();
  }
}

void EventLoop::Run() {
  std::optional<TimePoint> next;
  while (true) {
    std::deque<Task> tasks;
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
    for (Task& task : tasks) {
      task.run();
      if (task.call) {
        MutexLock lock(&mutex_);
        --calls_;
      }
    }
    if (stopping) {
      return;
    }
    next = tick_(clock_->Now());
  }
}

}  // namespace strata
