#include "worker/backend/cuda/emulation/emulation.h"

#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"

// The context switch of the machine, which saves what a call must keep and nothing else: that of
// the C library asks the system for the signal mask each time. Sanitizers know only the latter.
#if defined(__x86_64__) && !defined(STRATA_SANITIZED)
#define STRATA_OWN_SWITCH 1
extern "C" void strata_cuda_emulation_switch(void** save, void* to);
asm(R"(
.text
.globl strata_cuda_emulation_switch
.type strata_cuda_emulation_switch,@function
strata_cuda_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size strata_cuda_emulation_switch,.-strata_cuda_emulation_switch
)");
#endif

namespace strata::cuda_emulation {
namespace {

// As a GPU has it.
constexpr size_t kMostThreads = 1024;
constexpr size_t kMostBlocks = 65535;  // In y and z.

constexpr size_t kWarp = 32;

constexpr size_t kStackBytes = size_t{64} << 10;

enum class Wait { kNone, kBarrier, kWarp, kDone };

struct Fiber {
  dim3 index;
  Wait wait = Wait::kNone;
  int line = 0;             // Of the barrier that it waits at.
  void* brought = nullptr;  // To where its warp meets, and what is done there.
  void (*together)(void* const* of_lanes) = nullptr;
  std::unique_ptr<char[]> stack;
  void* stack_pointer = nullptr;
  ucontext_t context = {};
};

// The block that a thread of the host runs; its fibers are used again for the next.
struct Grid {
  dim3 block_index;
  dim3 block_size;
  dim3 grid_size;
  std::vector<Fiber> fibers;
  size_t threads = 0;  // Fibers in use.
  const std::function<void()>* body = nullptr;
  Fiber* current = nullptr;
  void* host_stack_pointer = nullptr;
  ucontext_t host = {};
  uint64_t order = 0;
  uint64_t mmas = 0;
  std::vector<Fiber*> turns;
};

thread_local Grid grid;

// A fiber never returns from these. Thread sanitizer counts calls and returns of a thread of the
// host, whose fibers are one to it, and would run out of room for calls.
#define STRATA_NOT_COUNTED __attribute__((noinline, no_sanitize("thread")))

STRATA_NOT_COUNTED void ToHost() {
#ifdef STRATA_OWN_SWITCH
  strata_cuda_emulation_switch(&grid.current->stack_pointer, grid.host_stack_pointer);
#else
  swapcontext(&grid.current->context, &grid.host);
#endif
}

void ToFiber(Fiber* fiber) {
  grid.current = fiber;
#ifdef STRATA_OWN_SWITCH
  strata_cuda_emulation_switch(&grid.host_stack_pointer, fiber->stack_pointer);
#else
  swapcontext(&grid.host, &fiber->context);
#endif
}

STRATA_NOT_COUNTED void RunBody() {
  (*grid.body)();
  grid.current->wait = Wait::kDone;
  ToHost();
  STRATA_CHECK(false);  // A thread that ended is not resumed.
}

void Start(Fiber* fiber) {
  if (fiber->stack == nullptr) {
    fiber->stack.reset(new char[kStackBytes]);
  }
  fiber->wait = Wait::kNone;
#ifdef STRATA_OWN_SWITCH
  // As after a call: the stack is aligned but for the address to return to, which is the body's,
  // and the registers that the switch takes off first are below it.
  constexpr size_t kSavedRegisters = 6;
  const auto top = reinterpret_cast<uintptr_t>(fiber->stack.get() + kStackBytes) & ~uintptr_t{15};
  void** at = reinterpret_cast<void**>(top) - 1;
  *--at = reinterpret_cast<void*>(&RunBody);
  for (size_t i = 0; i < kSavedRegisters; ++i) {
    *--at = nullptr;
  }
  fiber->stack_pointer = at;
#else
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, RunBody, 0);
#endif
}

// A sequence of numbers from a seed: the multiplier and increment of Knuth's MMIX.
uint64_t NextRandom(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

void Shuffle(uint64_t* state) {
  for (size_t i = grid.turns.size() - 1; i > 0; --i) {
    std::swap(grid.turns[i], grid.turns[NextRandom(state) % (i + 1)]);
  }
}

[[noreturn]] void Refuse(const std::string& what) {
  internal::CheckFailed(__FILE__, __LINE__, what.c_str());
}

// Has warps that wait for themselves go on. Whether there were any.
bool MeetWarps() {
  bool met = false;
  for (size_t first = 0; first < grid.threads; first += kWarp) {
    const std::span<Fiber> warp(&grid.fibers[first], std::min(kWarp, grid.threads - first));
    const auto waits = [](const Fiber& fiber) { return fiber.wait == Wait::kWarp; };
    const auto one = std::find_if(warp.begin(), warp.end(), waits);
    if (one == warp.end()) {
      continue;
    }
    void* brought[kWarp] = {};
    for (size_t lane = 0; lane < kWarp; ++lane) {
      if (lane >= warp.size() || !waits(warp[lane]) || warp[lane].line != one->line) {
        Refuse(absl::StrCat("a thread of a warp waits in line ", one->line,
                            ", which another of its threads does not reach"));
      }
      brought[lane] = warp[lane].brought;
    }
    one->together(brought);
    for (Fiber& fiber : warp) {
      fiber.wait = Wait::kNone;
    }
    met = true;
  }
  return met;
}

struct MmaLane {
  int inputs;
  int* d;
  const unsigned* a;
  const unsigned* b;
};

int ByteOf(unsigned word, int byte) { return static_cast<int8_t>(word >> (8 * byte)); }

// Of a lane `lane`: row lane / 4 and lane / 4 + 8 of a, column lane / 4 of b, of inputs 4 (lane %
// 4) and the three behind it, and 16 later; of d those rows and columns 2 (lane % 4) and the next.
void MultiplyFragments(void* const* of_lanes) {
  ++grid.mmas;
  const auto lane_at = [&](int lane) { return static_cast<const MmaLane*>(of_lanes[lane]); };
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      int sum = 0;
      for (int k = 0; k < lane_at(0)->inputs; ++k) {
        const int word = k / 16;
        const unsigned a = lane_at(4 * (row % 8) + k % 16 / 4)->a[2 * word + row / 8];
        const unsigned b = lane_at(4 * column + k % 16 / 4)->b[word];
        sum += ByteOf(a, k % 4) * ByteOf(b, k % 4);
      }
      lane_at(4 * (row % 8) + column / 2)->d[row / 8 * 2 + column % 2] += sum;
    }
  }
}

// Runs every thread of a block to its next barrier, again and again, until all have ended.
void RunBlock() {
  grid.turns.clear();
  for (size_t i = 0; i < grid.threads; ++i) {
    Start(&grid.fibers[i]);
    grid.turns.push_back(&grid.fibers[i]);
  }
  if (grid.order == 1) {
    std::reverse(grid.turns.begin(), grid.turns.end());
  }
  uint64_t random = grid.order;
  for (;;) {
    if (grid.order > 1) {
      Shuffle(&random);
    }
    for (Fiber* fiber : grid.turns) {
      if (fiber->wait == Wait::kNone) {
        ToFiber(fiber);
      }
    }
    if (MeetWarps()) {
      continue;
    }
    size_t done = 0;
    const Fiber* waiting = nullptr;
    for (size_t i = 0; i < grid.threads; ++i) {
      const Fiber& fiber = grid.fibers[i];
      if (fiber.wait == Wait::kDone) {
        ++done;
        continue;
      }
      if (waiting != nullptr && waiting->line != fiber.line) {
        Refuse(absl::StrCat("threads of a block wait at two barriers, in lines ", waiting->line,
                            " and ", fiber.line));
      }
      waiting = &fiber;
    }
    if (done == grid.threads) {
      return;
    }
    if (done > 0) {
      Refuse(absl::StrCat("threads of a block wait at the barrier in line ", waiting->line,
                          ", which others ended without"));
    }
    for (size_t i = 0; i < grid.threads; ++i) {
      grid.fibers[i].wait = Wait::kNone;
    }
  }
}

void CheckLaunch(dim3 blocks, dim3 block) {
  if (block.count() == 0 || block.count() > kMostThreads || blocks.count() == 0 ||
      blocks.y > kMostBlocks || blocks.z > kMostBlocks) {
    Refuse(absl::StrCat("a launch of ", blocks.x, " x ", blocks.y, " x ", blocks.z, " blocks of ",
                        block.count(), " threads"));
  }
}

}  // namespace

dim3 ThreadIndex() { return grid.current->index; }
dim3 BlockIndex() { return grid.block_index; }
dim3 BlockSize() { return grid.block_size; }
dim3 GridSize() { return grid.grid_size; }

void SyncThreads(int line) {
  grid.current->wait = Wait::kBarrier;
  grid.current->line = line;
  ToHost();
}

void MeetWarp(int line, void* brought, void (*together)(void* const* of_lanes)) {
  grid.current->wait = Wait::kWarp;
  grid.current->line = line;
  grid.current->brought = brought;
  grid.current->together = together;
  ToHost();
}

void MmaBytes(int line, int inputs, int* d, const unsigned* a, const unsigned* b) {
  MmaLane lane = {inputs, d, a, b};
  MeetWarp(line, &lane, MultiplyFragments);
}

void SetThreadOrder(uint64_t order) { grid.order = order; }
uint64_t MmaCount() { return grid.mmas; }

void Launch(dim3 blocks, dim3 block, void* stream, std::function<void()> body) {
  CheckLaunch(blocks, block);
  if (stream == nullptr) {
    Launch(blocks, block, body);
    return;
  }
  static_cast<EmulatedStream*>(stream)->Put(
      [blocks, block, body = std::move(body)] { Launch(blocks, block, body); });
}

void Launch(dim3 blocks, dim3 block, const std::function<void()>& body) {
  CheckLaunch(blocks, block);
  grid.block_size = block;
  grid.grid_size = blocks;
  grid.body = &body;
  grid.threads = block.count();
  if (grid.fibers.size() < grid.threads) {
    grid.fibers.resize(grid.threads);
  }
  for (size_t i = 0; i < grid.threads; ++i) {
    const auto at = static_cast<unsigned>(i);
    grid.fibers[i].index = dim3(at % block.x, at / block.x % block.y, at / (block.x * block.y));
  }
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        grid.block_index = dim3(x, y, z);
        RunBlock();
      }
    }
  }
  grid.body = nullptr;
}

}  // namespace strata::cuda_emulation
