// Which core a thread computes on, and which memory node its part of the weights lies on.
#ifndef STRATA_WORKER_BACKEND_CPU_THREADS_PLACEMENT_H_
#define STRATA_WORKER_BACKEND_CPU_THREADS_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/platform/platform.h"

namespace strata::cpu {

struct Placement {
  // By thread of the pool; the first, which is whoever calls, is not pinned to its core: it stays
  // free for it. Empty: the scheduler places all.
  std::vector<Core> threads;
  std::string why;  // Why it is empty.

  // Of `threads`, by thread.
  std::vector<uint32_t> cores() const;
  std::vector<uint32_t> nodes() const;
  uint32_t memory_nodes() const;  // Different ones, at least 1.
  // "pinned to cores 1-3, 8 beside the caller's 0, 2 memory nodes", or "not pinned: why".
  std::string Text() const;
};

// The cores for `threads` threads: physical ones before their hyperthreads, one memory node before
// the next; threads of a node follow each other, so that their parts of a matrix do. `pin` is
//   "off"   none;
//   "on"    wherever there are two; INVALID_ARGUMENT with fewer cores, or where none are known;
//   "auto"  where nobody else is meant to be on these cores, and it helps: each core that the
//           process may use has one thread, `quota_cores` (of its cgroup, or all) are no fewer, and
//           they are only part of the machine's, or on several memory nodes. Elsewhere another
//           worker may well be on the same cores, where two pinned threads could not evade each
//           other.
absl::StatusOr<Placement> PlaceThreads(std::string_view pin, uint32_t threads, uint32_t quota_cores,
                                       const Topology& topology);

// Asks for memory, not yet written, to be on a node.
using PlaceMemoryFn = std::function<void(uint8_t* data, size_t bytes, uint32_t node)>;

// Puts panels where the threads that ThreadPool::Split gives them to read them from nearby.
class WeightPlacer {
 public:
  // `nodes` by thread: fewer than two different ones, and nothing is ever placed.
  WeightPlacer(std::vector<uint32_t> nodes, PlaceMemoryFn place);

  // All panels of a matrix. Those of several matrices may be split as one row: `all` of them, of
  // which `before` come before these.
  void Place(std::span<uint8_t> panels, size_t panel_bytes, size_t before, size_t all) const;

 private:
  const std::vector<uint32_t> nodes_;
  const PlaceMemoryFn place_;
  const bool places_;
};

}  // namespace strata::cpu

#endif  // STRATA_WORKER_BACKEND_CPU_THREADS_PLACEMENT_H_
