// Weights that a load left in pages of files come to large pages behind the first steps.
#ifndef STRATA_WORKER_BACKEND_CPU_THREADS_PAGE_MOVER_H_
#define STRATA_WORKER_BACKEND_CPU_THREADS_PAGE_MOVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/platform/platform.h"

namespace strata::cpu {

// Moves memory that nobody writes any more, a piece at a time, on a thread of its own, which gives
// way as whoever starts it does. Bytes and addresses stay as they are, so that others read all the
// time.
class PageMover {
 public:
  // Told at the end, on that thread, unless it is stopped before: RESOURCE_EXHAUSTED where memory
  // is short, so that only `moved_bytes` are moved.
  using DoneFn = std::function<void(const absl::Status& status, uint64_t moved_bytes)>;

  // Each of `mapped` lies in a PageBuffer that outlives this: with the rest of the large pages that
  // it begins and ends on it is moved. `told` may be null. `available` is of the system's memory.
  PageMover(const std::vector<std::span<uint8_t>>& mapped, DoneFn told,
            std::function<uint64_t()> available = AvailableMemoryBytes);
  // After the piece that it is moving; what is behind stays where it is.
  ~PageMover();
  PageMover(const PageMover&) = delete;
  PageMover& operator=(const PageMover&) = delete;

  // Of all movers of the process, what is not moved: memory that the system counts as free. Any
  // thread.
  static uint64_t UnmovedBytes();

  // Whole large pages, not more than this at once: it is what is there twice meanwhile, beside the
  // files' pages, which the system takes back when it needs them.
  static constexpr size_t kPieceBytes = size_t{32} << 20;
  // The pieces, ascending and apart.
  static std::vector<std::span<uint8_t>> PiecesOf(const std::vector<std::span<uint8_t>>& mapped);

 private:
  void Run();

  const std::vector<std::span<uint8_t>> pieces_;
  const DoneFn told_;
  const std::function<uint64_t()> available_;
  uint64_t left_bytes_ = 0;  // The thread's, until it has ended.
  std::atomic<bool> stop_{false};
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_THREADS_PAGE_MOVER_H_
