// The numbers of sequences: what tells two sequences of one request id apart on the workers.
// Messages call such a number a generation.
#ifndef STRATA_COORDINATOR_ENGINE_SEQUENCE_NUMBERS_H_
#define STRATA_COORDINATOR_ENGINE_SEQUENCE_NUMBERS_H_

#include <atomic>
#include <cstdint>

#include "common/check.h"

namespace strata {

// (coordinator term << kTermShift) | n, n from 1: ever larger, also over restarts, since the state
// store raises the term at every start. One object for all deployments of a coordinator. Any
// thread.
class SequenceNumbers {
 public:
  static constexpr int kTermShift = 40;

  // `term` < 2^24.
  explicit SequenceNumbers(uint64_t term) : next_((term << kTermShift) + 1) {
    STRATA_CHECK(term < (uint64_t{1} << (64 - kTermShift)));
  }

  uint64_t Next() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> next_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_SEQUENCE_NUMBERS_H_
