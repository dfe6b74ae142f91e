#include "coordinator/deployment/recorded_epochs.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "common/status.h"

namespace strata {
namespace {

class RecordedEpochsTest : public ::testing::Test {
 protected:
  RecordedEpochs epochs_{"m", [this] { ++asked_; }};
  int asked_ = 0;
};

TEST_F(RecordedEpochsTest, OnlyWhatARecordCoversMayBeUsed) {
  EXPECT_EQ(ReasonOf(epochs_.Use(1)), "EPOCHS_NOT_RECORDED");
  EXPECT_EQ(asked_, 1);
  const uint64_t covered = RecordedEpochs::Ahead(1);
  epochs_.OnRecorded(covered, absl::OkStatus());
  EXPECT_TRUE(epochs_.Use(1).ok());
  EXPECT_TRUE(epochs_.Use(covered).ok());
  EXPECT_EQ(ReasonOf(epochs_.Use(covered + 1)), "EPOCHS_NOT_RECORDED");
}

TEST_F(RecordedEpochsTest, ANewRecordIsAskedForOnceWhenHalfIsUsed) {
  const uint64_t covered = RecordedEpochs::Ahead(1);
  epochs_.OnRecorded(covered, absl::OkStatus());
  EXPECT_TRUE(epochs_.Use(covered / 2).ok());
  EXPECT_EQ(asked_, 0);
  for (uint64_t epoch = covered / 2 + 1; epoch < covered / 2 + 5; ++epoch) {
    EXPECT_TRUE(epochs_.Use(epoch).ok());
  }
  EXPECT_EQ(asked_, 1);
  epochs_.OnRecorded(RecordedEpochs::Ahead(covered / 2 + 5), absl::OkStatus());
  EXPECT_TRUE(epochs_.Use(covered / 2 + 5).ok());
  EXPECT_EQ(asked_, 1);
}

TEST_F(RecordedEpochsTest, ARecordThatFailedIsAskedForAgainAndSaysWhyAtTheEnd) {
  const uint64_t covered = RecordedEpochs::Ahead(1);
  epochs_.OnRecorded(covered, absl::OkStatus());
  epochs_.OnRecorded(covered + 1,
                     Error(absl::StatusCode::kResourceExhausted, "STORE_FULL", "full"));
  EXPECT_TRUE(epochs_.Use(2).ok());  // The older record still covers it.
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(epochs_.Left(3), covered - 2);
  EXPECT_EQ(ReasonOf(epochs_.Use(covered + 1)), "STORE_FULL");
  EXPECT_EQ(epochs_.Left(covered + 2), 0u);
}

TEST(EpochsOfATerm, AreAboveThoseOfEveryEarlierTermWhateverWasRecorded) {
  for (const uint64_t term : {1u, 2u, 1000u}) {
    EXPECT_GT(FirstEpochOfTerm(term + 1, 0), LastEpochOfTerm(term));
    EXPECT_LT(FirstEpochOfTerm(term, 0), LastEpochOfTerm(term));
    const uint64_t stored = FirstEpochOfTerm(term, 0) + 5000;
    EXPECT_EQ(FirstEpochOfTerm(term, stored), stored) << "a record is never gone below";
  }
}

}  // namespace
}  // namespace strata
