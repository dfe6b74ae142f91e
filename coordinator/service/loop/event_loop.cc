#include "coordinator/service/loop/event_loop.h"

#include <algorithm>
#include <string>

#include "common/platform/platform.h"
#include "common/status.h"
#include "coordinator/service/loop/errors.h"

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
  thread_ = std::thread([this] {
    NameThread("event loop");
    Run();
  });
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
  Task call{std::move(task), true};
  {
    MutexLock lock(&mutex_);
    if (!running_ || stopping_) {
      return Stopping();
    }
    if (calls_ >= max_calls_) {
      return Error(
                 absl::StatusCode::kResourceExhausted, "OVERLOADED",
                 "the coordinator is overloaded: " + std::to_string(calls_) + " calls wait already")
          .Limit("waiting_calls=" + std::to_string(max_calls_))
          .Hint("try again in a moment, or raise --max-waiting-calls of strata-coordinator");
    }
    ++calls_;
    if (!Lend(&call)) {
      return absl::OkStatus();
    }
  }
  RunHere(std::move(call));
  return absl::OkStatus();
}

void EventLoop::Push(Task task) {
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) {
    wake_.NotifyOne();
  }
}

bool EventLoop::RunOrPost(std::function<void()> task) {
  Task lent{std::move(task), false};
  {
    MutexLock lock(&mutex_);
    if (!running_ || stopping_) {
      return false;
    }
    if (!Lend(&lent)) {
      return true;
    }
  }
  RunHere(std::move(lent));
  return true;
}

bool EventLoop::Lend(Task* task) {
  if (busy_ || !tasks_.empty()) {
    Push(std::move(*task));
    return false;
  }
  busy_ = true;
  return true;
}

void EventLoop::RunHere(Task task) {
  task.run();
  task.run = nullptr;  // What it holds ends on the loop.
  const std::optional<TimePoint> next = tick_(clock_->Now());
  MutexLock lock(&mutex_);
  if (task.call) {
    --calls_;
  }
  Settle(next);
}

void EventLoop::Settle(std::optional<TimePoint> next) {
  // The loop's thread waits for the earlier wish, or for this to end.
  const bool sooner = next.has_value() && (!next_.has_value() || *next < *next_);
  next_ = next;
  busy_ = false;
  if (sooner || !tasks_.empty() || stopping_) {
    wake_.NotifyOne();
  }
}

void EventLoop::WaitForWork() {
  while (busy_ || (tasks_.empty() && !stopping_)) {
    nanoseconds wait = kLongestWait;
    if (!busy_ && next_.has_value()) {
      const TimePoint now = clock_->Now();
      if (*next_ <= now) {
        return;
      }
      wait = std::min<nanoseconds>(wait, *next_ - now);
    }
    if (!wake_.WaitFor(&mutex_, wait) && !busy_) {
      return;
    }
  }
}

void EventLoop::Run() {
  bool stopping = false;
  while (!stopping) {
    std::deque<Task> tasks;
    {
      MutexLock lock(&mutex_);
      WaitForWork();
      tasks.swap(tasks_);
      stopping = stopping_;
      busy_ = true;
    }
    for (Task& task : tasks) {
      task.run();
      if (task.call) {
        MutexLock lock(&mutex_);
        --calls_;
      }
    }
    tasks.clear();  // What they hold ends on the loop.
    const std::optional<TimePoint> next = stopping ? std::nullopt : tick_(clock_->Now());
    MutexLock lock(&mutex_);
    Settle(next);
  }
}

}  // namespace strata
