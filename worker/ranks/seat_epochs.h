// In which epochs of the ranks a follower joins.
#ifndef STRATA_WORKER_RANKS_SEAT_EPOCHS_H_
#define STRATA_WORKER_RANKS_SEAT_EPOCHS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace strata {

// Of one loaded rank. One thread at a time.
class SeatEpochs {
 public:
  // `rank` of so many, not the first.
  SeatEpochs(uint32_t rank, uint32_t ranks);

  // A leader asks rank `rank` of `ranks` to join in an epoch, with the addresses of so many lower
  // ranks. OK: it may, and the epoch before ends. INVALID_ARGUMENT (RANK_JOIN): another rank is
  // meant, or not all lower ranks are named; FAILED_PRECONDITION (RANK_JOIN): the epoch is not
  // above all before it.
  absl::Status Join(uint64_t epoch, uint32_t rank, uint32_t ranks, size_t lower);

 private:
  const uint32_t rank_;
  const uint32_t ranks_;
  uint64_t last_ = 0;
};

}  // namespace strata

#endif  // STRATA_WORKER_RANKS_SEAT_EPOCHS_H_
