// One thread that owns the coordinator's state: everything from gRPC, HTTP and timers enters it
// through this queue, and nothing else touches the cores.
#ifndef STRATA_COORDINATOR_SERVICE_EVENT_LOOP_H_
#define STRATA_COORDINATOR_SERVICE_EVENT_LOOP_H_

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/mutex.h"

namespace strata {

class EventLoop {
 public:
  // `tick` runs on the loop's thread after every batch of tasks and when its own wish to be woken
  // comes; it returns when it wants to run next.
  using TickFn = std::function<std::optional<TimePoint>(TimePoint now)>;

  EventLoop(const Clock* clock, TickFn tick);
  ~EventLoop();  // Stops.
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void Start();
  // Runs what was posted before, then ends the thread. What is posted later is dropped.
  void Stop();

  // Runs `task` on the loop's thread, in the order of posting. Any thread. False before Start and
  // after Stop.
  bool Post(std::function<void()> task);

  // Runs `f` on the loop's thread and waits for its result. Not from the loop's thread. Gives
  // nullopt when the loop was stopped.
  template <typename F>
  auto Call(F f) -> std::optional<decltype(f())> {
    using Result = decltype(f());
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(f));
    std::future<Result> result = task->get_future();
    if (!Post([task] { (*task)(); })) {
      return std::nullopt;
    }
    return result.get();
  }

 private:
  void Run();

  const Clock* const clock_;
  const TickFn tick_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> tasks_ STRATA_GUARDED_BY(mutex_);
  bool running_ STRATA_GUARDED_BY(mutex_) = false;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_EVENT_LOOP_H_
