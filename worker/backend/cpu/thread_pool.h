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

// What threads are for. Those that load give way to those that compute.
enum class ThreadUse { kCompute, kLoad };

// Tells the system what the calling thread is for from now on: its name, "strata-compute" or
// "strata-load", and whether it gives way.
void BeginUse(ThreadUse use);

// The calling thread is one of `threads`; the others spin briefly between calls, then park. All
// run in the floating-point environment that results depend on, and nothing that is computed
// depends on how many there are, or on who computes it.
class ThreadPool {
 public:
  // At least one thread. `cores` is what the process may use: with more threads than cores none
  // spins.
  ThreadPool(uint32_t threads, uint32_t cores, ThreadUse use = ThreadUse::kCompute);
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
    RunWithParts(function, 0);
  }

  // function(begin, end), or function(thread, begin, end), over [0, count), which is cut into a
  // contiguous part a thread. Each works through its own from the front, a piece after another, and
  // then helps those that are not done, from the back: a core that is slower, or was busy
  // elsewhere, holds up none. All of it on the caller where there are at most `small` to do.
  template <typename Function>
  void Split(size_t count, const Function& function, size_t small = 1) {
    const auto call = [&](uint32_t thread, size_t begin, size_t end) {
      if constexpr (std::is_invocable_v<Function, uint32_t, size_t, size_t>) {
        function(thread, begin, end);
      } else {
        function(begin, end);
      }
    };
    if (threads_ == 1 || count <= small) {
      if (count > 0) {
        RunHere([&] { call(0, 0, count); });
      }
      return;
    }
    const auto work = [&](uint32_t thread) {
      for (uint32_t i = 0; i < threads_; ++i) {
        Part& part = parts_[(thread + i) % threads_];
        for (Piece piece = part.Take(i == 0); piece.begin < piece.end; piece = part.Take(i == 0)) {
          call(thread, piece.begin, piece.end);
        }
      }
    };
    RunWithParts(work, count);
  }

 private:
  using Erased = void (*)(const void* context, uint32_t thread);

  template <typename Function>
  void RunHere(const Function& function) {
    RunCaller([](const void* context, uint32_t) { (*static_cast<const Function*>(context))(); },
              &function);
  }
  struct Piece {
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  // What is left of a thread's part.
  class alignas(64) Part {
   public:
    void Set(size_t begin, size_t end) {
      left_.store(Packed({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}),
                  std::memory_order_relaxed);
    }
    // A quarter of it, so that little is held by who is late at the end; nothing when it is empty.
    Piece Take(bool front);

   private:
    static uint64_t Packed(Piece piece) { return uint64_t{piece.begin} << 32 | piece.end; }
    std::atomic<uint64_t> left_{0};
  };

  // With `count` things in the parts, if any.
  template <typename Function>
  void RunWithParts(const Function& function, size_t count) {
    RunErased([](const void* context,
                 uint32_t thread) { (*static_cast<const Function*>(context))(thread); },
              &function, count);
  }
  void RunErased(Erased function, const void* context, size_t count);
  static void RunCaller(Erased function, const void* context);
  void WorkerLoop(uint32_t thread, ThreadUse use);
  // The next generation after `seen`.
  uint32_t AwaitGeneration(uint32_t seen);
  void AwaitDone();

  const uint32_t threads_;
  const bool spins_;
  Mutex run_mutex_;  // Callers take turns.

  // Written by the caller before `generation_`, read by workers after it.
  Erased function_ = nullptr;
  const void* context_ = nullptr;
  std::vector<Part> parts_;  // One a thread.
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
