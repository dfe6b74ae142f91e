// Owns the coordinator's state: everything from gRPC, HTTP and timers enters through this queue,
// and nothing else touches the cores. Tasks and ticks run one at a time, on the loop's own thread
// or on one that lends itself (RunOrPost).
#ifndef STRATA_COORDINATOR_SERVICE_LOOP_EVENT_LOOP_H_
#define STRATA_COORDINATOR_SERVICE_LOOP_EVENT_LOOP_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace strata {

// What EventLoop::Ask gives for a function that returns T: T itself when it can carry an error,
// else StatusOr<T>.
template <typename T>
struct AskResult {
  using Type = absl::StatusOr<T>;
};
template <>
struct AskResult<absl::Status> {
  using Type = absl::Status;
};
template <typename T>
struct AskResult<absl::StatusOr<T>> {
  using Type = absl::StatusOr<T>;
};

class EventLoop {
 public:
  // `tick` runs on the loop after every batch of tasks and when its own wish to be woken comes; it
  // returns when it wants to run next.
  using TickFn = std::function<std::optional<TimePoint>(TimePoint now)>;

  // At most `max_calls` tasks of Offer and Ask wait or run at once.
  EventLoop(const Clock* clock, TickFn tick, size_t max_calls);
  ~EventLoop();  // Stops.
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void Start();
  // Runs what was posted before, then ends the thread. What is posted later is dropped.
  void Stop();

  // Runs `task` on the loop, in the order of posting. Any thread. False before Start and after
  // Stop. For what the process itself does, which is bounded where it arises: always taken.
  bool Post(std::function<void()> task);

  // Like Post; but where the loop is idle `task` and the tick run before this returns, on the
  // calling thread, which so need not wake another. Not from a task.
  bool RunOrPost(std::function<void()> task);

  // Like RunOrPost, for what clients ask: refused with RESOURCE_EXHAUSTED (OVERLOADED) while
  // `max_calls` of them have not run yet, and UNAVAILABLE (STOPPING) where RunOrPost is false.
  absl::Status Offer(std::function<void()> task);

  // Runs `f` on the loop and waits for its result. Not from a task. Gives
  // nullopt when the loop was stopped. Always taken, like Post.
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

  // Call for what clients ask: with Offer's errors.
  template <typename F>
  auto Ask(F f) -> typename AskResult<decltype(f())>::Type {
    using Result = decltype(f());
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(f));
    std::future<Result> result = task->get_future();
    if (absl::Status taken = Offer([task] { (*task)(); }); !taken.ok()) {
      return taken;
    }
    return result.get();
  }

 private:
  struct Task {
    std::function<void()> run;
    bool call = false;  // Counts among `calls_`.
  };

  void Run();
  // Whether `task` is to run on the calling thread, by RunHere: the loop is idle. Else it is
  // pushed.
  bool Lend(Task* task) STRATA_REQUIRES(mutex_);
  void RunHere(Task task) STRATA_EXCLUDES(mutex_);
  void Push(Task task) STRATA_REQUIRES(mutex_);
  // Waits until there is something to do and nobody does it.
  void WaitForWork() STRATA_REQUIRES(mutex_);
  // What runs has ended; `next` is the tick's.
  void Settle(std::optional<TimePoint> next) STRATA_REQUIRES(mutex_);

  const Clock* const clock_;
  const TickFn tick_;
  const size_t max_calls_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Task> tasks_ STRATA_GUARDED_BY(mutex_);
  size_t calls_ STRATA_GUARDED_BY(mutex_) = 0;   // Tasks of Offer that have not ended.
  bool busy_ STRATA_GUARDED_BY(mutex_) = false;  // Tasks or the tick run.
  std::optional<TimePoint> next_ STRATA_GUARDED_BY(mutex_);
  bool running_ STRATA_GUARDED_BY(mutex_) = false;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_LOOP_EVENT_LOOP_H_
