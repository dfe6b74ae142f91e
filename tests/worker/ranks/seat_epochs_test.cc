#include "worker/ranks/seat_epochs.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace strata {
namespace {

TEST(SeatEpochs, JoinsInEpochsEachAboveTheOneBefore) {
  SeatEpochs seat(2, 3);
  EXPECT_TRUE(seat.Join(5, 2, 3, 1).ok());
  EXPECT_EQ(seat.Join(5, 2, 3, 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(seat.Join(4, 2, 3, 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(seat.Join(9, 2, 3, 1).ok());
}

TEST(SeatEpochs, RefusesWhatIsAskedOfAnotherRank) {
  SeatEpochs seat(1, 3);
  EXPECT_EQ(ReasonOf(seat.Join(1, 2, 3, 1)), "RANK_JOIN");
  EXPECT_EQ(seat.Join(1, 1, 2, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(seat.Join(1, 1, 3, 1).code(), absl::StatusCode::kInvalidArgument);
  // What was refused counts for nothing.
  EXPECT_TRUE(seat.Join(1, 1, 3, 0).ok());
}

}  // namespace
}  // namespace strata
