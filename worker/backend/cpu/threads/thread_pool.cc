#include "worker/backend/cpu/threads/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "common/platform/platform.h"
#include "worker/backend/cpu/threads/float_environment.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace strata::cpu {
namespace {

// Ten times the gaps between the phases of a step. By the clock: a pause takes three nanoseconds on
// one processor and forty on another.
constexpr std::chrono::microseconds kSpin(50);

// Beside threads that compute all the time a loading one has about a quarter of a core.
constexpr int kLoadNiceness = 5;

inline void Relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether it came about while spinning.
template <typename Condition>
bool SpinUntil(const Condition& condition) {
  constexpr int kBetweenLooks = 32;  // At the clock.
  std::optional<std::chrono::steady_clock::time_point> end;
  while (true) {
    for (int i = 0; i < kBetweenLooks; ++i) {
      if (condition()) {
        return true;
      }
      Relax();
    }
    const auto now = std::chrono::steady_clock::now();
    if (!end.has_value()) {
      end = now + kSpin;
    } else if (now >= *end) {
      return false;
    }
  }
}

}  // namespace

void BeginUse(ThreadUse use) {
  NameThread(use == ThreadUse::kLoad ? "strata-load" : "strata-compute");
  if (use == ThreadUse::kLoad) {
    ThreadGivesWay(kLoadNiceness);
  }
}

ThreadPool::ThreadPool(uint32_t threads, uint32_t cores, ThreadUse use)
    : threads_(std::max(1u, threads)), spins_(threads <= cores), parts_(threads_) {
  workers_.reserve(threads_ - 1);
  for (uint32_t i = 1; i < threads_; ++i) {
    workers_.emplace_back([this, i, use] { WorkerLoop(i, use); });
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&park_mutex_);
    stop_.store(true);
    generation_.fetch_add(1);
    work_.NotifyAll();
  }
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

bool ThreadPool::Pin(std::span<const uint32_t> cores) {
  for (uint32_t i = 1; i < threads_; ++i) {
    if (!PinThread(workers_[i - 1].native_handle(), cores[i])) {
      return false;
    }
  }
  return true;
}

void ThreadPool::RunCaller(Erased function, const void* context) {
  ScopedFloatEnvironment environment;
  function(context, 0);
}

ThreadPool::Piece ThreadPool::Part::Take(bool front) {
  uint64_t left = left_.load(std::memory_order_relaxed);
  while (true) {
    const Piece all{static_cast<uint32_t>(left >> 32), static_cast<uint32_t>(left)};
    if (all.empty()) {
      return {};
    }
    // By twos, which some functions like, but for the last.
    const size_t most = all.end - all.begin;
    const size_t count = most > 4 ? (most + 7) / 8 * 2 : 1;
    const size_t cut = front ? all.begin + count : all.end - count;
    const Piece rest = front ? Piece{cut, all.end} : Piece{all.begin, cut};
    if (left_.compare_exchange_weak(left, Packed(rest), std::memory_order_relaxed)) {
      return front ? Piece{all.begin, cut} : Piece{cut, all.end};
    }
  }
}

void ThreadPool::RunErased(Erased function, const void* context, size_t count) {
  if (threads_ == 1) {
    RunCaller(function, context);
    return;
  }
  MutexLock turn(&run_mutex_);
  function_ = function;
  context_ = context;
  for (uint32_t i = 0; count > 0 && i < threads_; ++i) {
    parts_[i].Set(PartBegin(count, i, threads_), PartBegin(count, i + 1, threads_));
  }
  const uint32_t generation = generation_.fetch_add(1) + 1;
  if (sleepers_.load() > 0) {
    MutexLock lock(&park_mutex_);
    work_.NotifyAll();
  }
  RunCaller(function, context);
  AwaitEnded(EndedAfter(generation));
}

void ThreadPool::AwaitEnded(uint32_t ended) {
  if (spins_ && SpinUntil([&] { return ended_.load(std::memory_order_acquire) == ended; })) {
    return;
  }
  MutexLock lock(&park_mutex_);
  caller_sleeps_.store(true);
  while (ended_.load() != ended) {
    done_.Wait(&park_mutex_);
  }
  caller_sleeps_.store(false);
}

uint32_t ThreadPool::AwaitGeneration(uint32_t seen) {
  if (spins_ && SpinUntil([&] { return generation_.load(std::memory_order_acquire) != seen; })) {
    return generation_.load(std::memory_order_acquire);
  }
  MutexLock lock(&park_mutex_);
  sleepers_.fetch_add(1);
  while (generation_.load() == seen) {
    work_.Wait(&park_mutex_);
  }
  sleepers_.fetch_sub(1);
  return generation_.load();
}

void ThreadPool::WorkerLoop(uint32_t thread, ThreadUse use) {
  BeginUse(use);
  ScopedFloatEnvironment environment;
  uint32_t seen = 0;
  for (;;) {
    seen = AwaitGeneration(seen);
    if (stop_.load()) {
      return;
    }
    function_(context_, thread);
    if (ended_.fetch_add(1) + 1 == EndedAfter(seen) && caller_sleeps_.load()) {
      MutexLock lock(&park_mutex_);
      done_.NotifyAll();
    }
  }
}

}  // namespace strata::cpu
