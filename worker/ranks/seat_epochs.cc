#include "worker/ranks/seat_epochs.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace strata {

SeatEpochs::SeatEpochs(uint32_t rank, uint32_t ranks) : rank_(rank), ranks_(ranks) {
  STRATA_CHECK(rank > 0 && rank < ranks);
}

absl::Status SeatEpochs::Join(uint64_t epoch, uint32_t rank, uint32_t ranks, size_t lower) {
  if (rank != rank_ || ranks != ranks_ || lower != rank - 1) {
    return Error(absl::StatusCode::kInvalidArgument, "RANK_JOIN",
                 absl::StrCat("rank ", rank, " of ", ranks, " is asked to join with ", lower,
                              " addresses, and this is rank ", rank_, " of ", ranks_));
  }
  if (epoch <= last_) {
    return Error(absl::StatusCode::kFailedPrecondition, "RANK_JOIN",
                 absl::StrCat("the ranks' epoch ", epoch, " is not above epoch ", last_,
                              ", which was joined before"));
  }
  last_ = epoch;
  return absl::OkStatus();
}

}  // namespace strata
