#include <gtest/gtest.h>

#include <utility>

#include "common/status.h"
#include "coordinator/deployment/deployment.h"
#include "tests/coordinator/deployment/deployment_fixture.h"

namespace strata {
namespace {

TEST_F(DeploymentTest, ARecordLeavesEpochsAheadOfThoseInUse) {
  MakeReady();
  const StoredDeployment record = deployment_.Record();
  EXPECT_EQ(record.id, kId);
  EXPECT_EQ(record.model, "m");
  EXPECT_EQ(record.options.kv_tokens(), 512u);
  EXPECT_EQ(record.plan.pipelines(0).stages_size(), 2);
  EXPECT_GT(record.plan.epoch(), deployment_.plan().epoch() + 100);
}

TEST_F(DeploymentTest, AnEpochThatCannotBeRecordedIsNotUsed) {
  deployment_.Load({{"a", 11}, {"b", 12}});
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
  EXPECT_EQ(ReasonOf(deployment_.problem()), "EPOCHS_NOT_RECORDED");
  EXPECT_TRUE(host_.TakeLoads("a").empty());
  EXPECT_EQ(host_.records_asked, 1);
  deployment_.OnRecorded(1000, Error(absl::StatusCode::kResourceExhausted, "STORE_FULL", "full"));
  deployment_.Load({{"a", 11}, {"b", 12}});
  EXPECT_EQ(ReasonOf(deployment_.problem()), "STORE_FULL");
  EXPECT_TRUE(host_.TakeLoads("a").empty());
  EXPECT_EQ(host_.records_asked, 2);
  Load();
  EXPECT_EQ(deployment_.state(), DeploymentState::kLoading);
}

// The fence that asks for a record goes out before there is one.
TEST_F(DeploymentTest, FencesNeedNoDiskUntilTheRecordedEpochsAreUsed) {
  MakeReady();
  const uint64_t recorded = deployment_.Record().plan.epoch() - 1;
  uint64_t epoch = deployment_.plan().epoch();
  while (host_.records_asked == 0) {
    ASSERT_LT(epoch, recorded);
    deployment_.pipeline()->SendFence(++epoch);
    ASSERT_EQ(host_.TakeFences("a").size(), 1u);
  }
  EXPECT_LT(epoch, recorded - 100) << "while there is time";
  while (epoch < recorded) {
    deployment_.pipeline()->SendFence(++epoch);
    ASSERT_EQ(host_.TakeFences("a").size(), 1u);
  }
  EXPECT_EQ(host_.records_asked, 1) << "it has not been answered";
  deployment_.Tick(host_.Now());
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
  deployment_.pipeline()->SendFence(++epoch);
  EXPECT_TRUE(host_.TakeFences("a").empty());
  deployment_.Tick(host_.Now());
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
  EXPECT_EQ(ReasonOf(deployment_.problem()), "EPOCHS_NOT_RECORDED");
}

TEST_F(DeploymentTest, ARecordInTimeGivesNewEpochs) {
  MakeReady();
  uint64_t epoch = deployment_.plan().epoch();
  for (int i = 0; i < 3000; ++i) {
    deployment_.pipeline()->SendFence(++epoch);
    if (std::exchange(host_.records_asked, 0) != 0) Record();
  }
  EXPECT_EQ(host_.TakeFences("a").size(), 3000u);
  deployment_.Tick(host_.Now());
  EXPECT_EQ(deployment_.state(), DeploymentState::kReady);
}

TEST_F(DeploymentTest, ARecordThatFailedIsAskedForAgainAtTheNextEpoch) {
  MakeReady();
  EXPECT_EQ(host_.records_asked, 0);
  deployment_.OnRecorded(0, Error(absl::StatusCode::kResourceExhausted, "STORE_FULL", "full"));
  const uint64_t epoch = deployment_.plan().epoch();
  deployment_.pipeline()->SendFence(epoch + 1);
  EXPECT_EQ(host_.records_asked, 1);
  EXPECT_EQ(host_.TakeFences("a").size(), 1u) << "there are epochs left";
  Record();
  deployment_.pipeline()->SendFence(epoch + 2);
  EXPECT_EQ(host_.records_asked, 1);
}

}  // namespace
}  // namespace strata
