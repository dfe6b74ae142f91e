// Threads that compute one step's phases: all start a function at once, and the call returns when
// all have ended.
#ifndef STRATA_WORKER_BACKEND_CPU_THREADS_THREAD_POOL_H_
#define STRATA_WORKER_BACKEND_CPU_THREADS_THREAD_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
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
  // Those of them that sleep now until there is something for them to do: any thread may ask.
  uint32_t parked() const { return sleepers_.load() + (caller_sleeps_.load() ? 1 : 0); }

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

  // What is shared out; `end` is past the last.
  struct Piece {
    size_t begin = 0;
    size_t end = 0;
    bool empty() const { return begin >= end; }
  };
  class Pieces;

  // body(thread, pieces) on every thread, which takes pieces of [0, count) until one is empty.
  // [0, count) is cut into a contiguous part a thread. Each gets its own from the front, a piece
  // after another, and then of those of threads that are not done, from the back: a core that is
  // slower, or was busy elsewhere, holds up none. All of it on the caller, as one piece, where
  // there are at most `small`.
  template <typename Body>
  void Share(size_t count, const Body& body, size_t small = 1);

  // function(begin, end), or function(thread, begin, end), for all pieces of [0, count).
  template <typename Function>
  void Split(size_t count, const Function& function, size_t small = 1);

 private:
  using Erased = void (*)(const void* context, uint32_t thread);

  template <typename Function>
  void RunHere(const Function& function) {
    RunCaller([](const void* context, uint32_t) { (*static_cast<const Function*>(context))(); },
              &function);
  }
  // What is left of a thread's part.
  class alignas(64) Part {
   public:
    void Set(size_t begin, size_t end) {
      left_.store(Packed({begin, end}), std::memory_order_relaxed);
    }
    // A quarter of it or a little more, so that little is held by who is late at the end; nothing
    // when it is empty.
    Piece Take(bool front);

   private:
    // Two halves of 32 bits.
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
  // What `ended_` is when all calls up to that one have ended. It wraps around.
  uint32_t EndedAfter(uint32_t generation) const { return generation * (threads_ - 1); }
  void AwaitEnded(uint32_t ended);

  const uint32_t threads_;
  const bool spins_;
  std::vector<Part> parts_;  // One a thread.

  alignas(64) Mutex run_mutex_;  // Callers take turns.
  // Written by the caller before `generation_`, read by workers after it. On its line, so that they
  // need not wait for a second one to come from the caller's core.
  alignas(64) Erased function_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<uint32_t> generation_{0};  // Calls begun.
  // Workers that have ended a call, of all calls: none has to set it back.
  alignas(64) std::atomic<uint32_t> ended_{0};

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

// One thread's view of what is shared out.
class ThreadPool::Pieces {
 public:
  // The next piece; an empty one when there is none.
  Piece Next() {
    for (; turn_ < parts_.size(); ++turn_) {
      const Piece piece = parts_[(thread_ + turn_) % parts_.size()].Take(turn_ == 0);
      if (!piece.empty()) {
        return piece;
      }
    }
    return std::exchange(whole_, Piece{});
  }

 private:
  friend class ThreadPool;
  Pieces(std::span<Part> parts, uint32_t thread) : parts_(parts), thread_(thread) {}
  explicit Pieces(Piece whole) : whole_(whole) {}

  const std::span<Part> parts_;  // None: there is one piece.
  const uint32_t thread_ = 0;
  uint32_t turn_ = 0;  // Parts that nothing is left of, the thread's own first.
  Piece whole_;
};

template <typename Body>
void ThreadPool::Share(size_t count, const Body& body, size_t small) {
  if (count == 0) {
    return;
  }
  if (threads_ == 1 || count <= small) {
    RunHere([&] { body(uint32_t{0}, Pieces(Piece{0, count})); });
    return;
  }
  RunWithParts([&](uint32_t thread) { body(thread, Pieces(parts_, thread)); }, count);
}

template <typename Function>
void ThreadPool::Split(size_t count, const Function& function, size_t small) {
  const auto body = [&](uint32_t thread, Pieces pieces) {
    for (Piece piece = pieces.Next(); !piece.empty(); piece = pieces.Next()) {
      if constexpr (std::is_invocable_v<Function, uint32_t, size_t, size_t>) {
        function(thread, piece.begin, piece.end);
      } else {
        function(piece.begin, piece.end);
      }
    }
  };
  Share(count, body, small);
}

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_THREADS_THREAD_POOL_H_
