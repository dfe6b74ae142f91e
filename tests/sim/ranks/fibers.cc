#include "tests/sim/ranks/fibers.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "common/check.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace strata::sim {
namespace {

constexpr size_t kStackBytes = size_t{512} << 10;

}  // namespace

// A stack is entered by makecontext; from then on it is left and gone on with by jumps, since
// swapcontext asks the system for signals at each. Sanitizers know swapcontext.
struct Fibers::Fiber {
  // Thread sanitizer is told which stack goes on.
#ifdef __SANITIZE_THREAD__
  class ToldStack {
   public:
    ToldStack() : own_(__tsan_create_fiber(0)) {}
    ~ToldStack() { __tsan_destroy_fiber(own_); }
    ToldStack(const ToldStack&) = delete;
    ToldStack& operator=(const ToldStack&) = delete;
    void Enter() {
      outside_ = __tsan_get_current_fiber();
      __tsan_switch_to_fiber(own_, 0);
    }
    void Leave() { __tsan_switch_to_fiber(outside_, 0); }

   private:
    void* const own_;
    void* outside_ = nullptr;
  };
#else
  struct ToldStack {
    void Enter() {}
    void Leave() {}
  };
#endif

  std::function<void()> body;
  std::unique_ptr<char[]> stack;
  ucontext_t own;
  ucontext_t outside;
  jmp_buf own_jump;
  jmp_buf outside_jump;
  bool entered = false;
  bool ended = false;
  ToldStack told;

  void Continue() {
#ifdef STRATA_SANITIZED
    told.Enter();
    swapcontext(&outside, &own);
#else
    if (_setjmp(outside_jump) != 0) {
      return;
    }
    if (std::exchange(entered, true)) {
      _longjmp(own_jump, 1);
    }
    setcontext(&own);
#endif
  }
  void Leave() {
#ifdef STRATA_SANITIZED
    told.Leave();
    swapcontext(&own, &outside);
#else
    if (_setjmp(own_jump) == 0) {
      _longjmp(outside_jump, 1);
    }
#endif
  }
};

namespace {

// makecontext takes numbers alone.
thread_local Fibers* entering = nullptr;

}  // namespace

Fibers::Fibers(Random* random) : random_(*random) {}

Fibers::~Fibers() { STRATA_CHECK(fibers_.empty()); }

void Fibers::Start(std::function<void()> body) {
  auto fiber = std::make_unique<Fiber>();
  fiber->body = std::move(body);
  fiber->stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  getcontext(&fiber->own);
  fiber->own.uc_stack.ss_sp = fiber->stack.get();
  fiber->own.uc_stack.ss_size = kStackBytes;
  fiber->own.uc_link = nullptr;
  makecontext(&fiber->own, Enter, 0);
  fibers_.push_back(std::move(fiber));
}

void Fibers::Enter() {
  Fiber* const fiber = entering->current_;
  fiber->body();
  fiber->ended = true;
  fiber->Leave();  // For good.
}

void Fibers::Pause() {
  STRATA_CHECK(current_ != nullptr);
  current_->Leave();
}

bool Fibers::Round() {
  std::vector<Fiber*> turns;
  for (const auto& fiber : fibers_) {
    turns.push_back(fiber.get());
  }
  while (!turns.empty()) {
    std::swap(turns[random_.Below(turns.size())], turns.back());
    current_ = turns.back();
    turns.pop_back();
    entering = this;
    current_->Continue();
    current_ = nullptr;
  }
  std::erase_if(fibers_, [](const auto& fiber) { return fiber->ended; });
  return !fibers_.empty();
}

}  // namespace strata::sim
