// Threads that compute one step's phases: all start a function at once, and the call returns when
// all have ended.
#ifndef STRATA_WORKER_BACKEND_CPU_THREAD_POOL_H_
#define STRATA_WORKER_BACKEND_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "common/mutex.h"

namespace strata::cpu {

// The calling thread is one of `threads`; the others spin briefly between calls, then park. All
// run in the floating-point environment that results depend on. The work of a thread is a function
// of its index alone, and nothing that is computed depends on how many there are.
class ThreadPool {
 public:
  // At least one thread. `cores` is what the process may use: with more threads than cores none
  // spins.
  ThreadPool(uint32_t threads, uint32_t cores);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t threads() const { return threads_; }

  // Pins every thread but the first, which is whoever calls, to cores[thread]. False: not allowed.
  bool Pin(std::span<const uint32_t> cores);

  // Where the part of a thread begins when `count` things are split.
  static constexpr size_t PartBegin(size_t count, size_t thread, size_t threads) {
    return count * thread / threads;
  }

  // function(thread) on every thread, 0 being the caller. Calls from several threads take turns;
  // the function must not call Run.
  template <typename Function>
  void Run(const Function& function) {
    RunErased([](const void* context,
                 uint32_t thread) { (*static_cast<const Function*>(context))(thread); },
              &function);
  }

  // function(begin, end) with every thread's contiguous part of [0, count), empty parts left out;
  // all of it on the caller where there are at most `small` to do.
  template <typename Function>
  void Split(size_t count, const Function& function, size_t small = 1) {
    if (threads_ == 1 || count <= small) {
      if (count > 0) {
        RunHere([&] { function(size_t{0}, count); });
      }
      return;
    }
    Run([&](uint32_t thread) {
      const size_t begin = PartBegin(count, thread, threads_);
      const size_t end = PartBegin(count, thread + 1, threads_);
      if (begin < end) {
        function(begin, end);
      }
    });
  }

 private:
  using Erased = void (*)(const void* context, uint32_t thread);

  template <typename Function>
  void RunHere(const Function& function) {
    RunCaller([](const void* context, uint32_t) { (*static_cast<const Function*>(context))(); },
              &function);
  }
  void RunErased(Erased function, const void* context);
  static void RunCaller(Erased function, const void* context);
  void WorkerLoop(uint32_t thread);
  // The next generation after `seen`.
  uint32_t AwaitGeneration(uint32_t seen);
  void AwaitDone();

  const uint32_t threads_;
  const int spins_;
  Mutex run_mutex_;  // Callers take turns.

  // Written by the caller before `generation_`, read by workers after it.
  Erased function_ = nullptr;
  const void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> pending_{0};

  // Parking. `sleepers_` and `caller_sleeps_` are raised before the condition is looked at again
  // under the mutex, and read after the condition was changed: one side always sees the other.
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
  Mutex park_mutex_;
  CondVar work_;
  CondVar done_;
  std::vector<std::thread> workers_;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_THREAD_POOL_H_
