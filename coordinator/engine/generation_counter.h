// Generations: what tells two lives of one request id apart on the workers.
#ifndef STRATA_COORDINATOR_ENGINE_GENERATION_COUNTER_H_
#define STRATA_COORDINATOR_ENGINE_GENERATION_COUNTER_H_

#include <atomic>
#include <cstdint>

#include "common/check.h"
#include "common/limits.h"

namespace strata {

// (coordinator term << 40) | n, n from 1: ever larger, also over restarts, since the state store
// raises the term at every start. One counter for all deployments of a coordinator. Any thread.
class GenerationCounter {
 public:
  // `term` < 2^24.
  explicit GenerationCounter(uint64_t term) : next_((term << kGenerationTermShift) + 1) {
    STRATA_CHECK(term < (uint64_t{1} << (64 - kGenerationTermShift)));
  }

  uint64_t Next() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> next_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_GENERATION_COUNTER_H_
