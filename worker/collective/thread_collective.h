// Ranks that are threads of one process.
#ifndef STRATA_WORKER_COLLECTIVE_THREAD_COLLECTIVE_H_
#define STRATA_WORKER_COLLECTIVE_THREAD_COLLECTIVE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "worker/collective/collective.h"

namespace strata {

struct ThreadCollectiveOptions {
  nanoseconds timeout = milliseconds(60'000);  // Of one wait.
  const Clock* clock = nullptr;                // Outlives the collectives; any thread.
  bool spins = false;                          // Briefly, before a rank sleeps.
};

// One for each of `ranks` ranks; they may be destroyed in any order.
std::vector<std::unique_ptr<Collective>> MakeThreadCollectives(
    uint32_t ranks, const ThreadCollectiveOptions& options);

}  // namespace strata

#endif  // STRATA_WORKER_COLLECTIVE_THREAD_COLLECTIVE_H_
