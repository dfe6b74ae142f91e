#include "coordinator/deployment/load_retry.h"

#include <gtest/gtest.h>

#include "common/status.h"
#include "tests/coordinator/deployment/deployment_fixture.h"

namespace strata {
namespace {

using std::chrono::seconds;

TEST_F(DeploymentTest, AFailedLoadIsDueAgainLaterAndLaterUntilTheModelIsReady) {
  nanoseconds before(0);
  for (uint32_t failed = 1; failed <= 20; ++failed) {
    Load();
    Progress("b", v1::LoadProgress::PHASE_FAILED, deployment_.plan().epoch());
    ASSERT_EQ(deployment_.retry().failed(), failed);
    ASSERT_TRUE(deployment_.retry().due().has_value());
    const nanoseconds delay = *deployment_.retry().due() - host_.now;
    EXPECT_GE(delay, before);
    EXPECT_LE(delay, LoadRetryOptions().most);
    before = delay;
    EXPECT_EQ(deployment_.NextWake(), deployment_.retry().due());
    EXPECT_FALSE(deployment_.BeginRetry(*deployment_.retry().due() - nanoseconds(1)));
    EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
    host_.now = *deployment_.retry().due();
    EXPECT_TRUE(deployment_.BeginRetry(host_.now));
    EXPECT_EQ(deployment_.state(), DeploymentState::kWaiting);
  }
  EXPECT_EQ(before, LoadRetryOptions().most);
  Load();
  EXPECT_EQ(deployment_.retry().failed(), 20u) << "until it is ready";
  BothReady();
  BothAckAndLink();
  EXPECT_EQ(deployment_.retry().failed(), 0u);
}

TEST_F(DeploymentTest, ALoadThatIsRefusedForWhatItIsIsNotTriedAgain) {
  Load();
  v1::LoadProgress progress;
  progress.set_epoch(1);
  progress.set_phase(v1::LoadProgress::PHASE_FAILED);
  *progress.mutable_error() =
      Error(absl::StatusCode::kUnimplemented, "NOT_IMPLEMENTED", "no such layer").Detail();
  deployment_.OnLoadProgress("a", progress);
  EXPECT_EQ(deployment_.state(), DeploymentState::kFailed);
  EXPECT_FALSE(deployment_.retry().due().has_value());
  EXPECT_FALSE(deployment_.NextWake().has_value());
  EXPECT_FALSE(deployment_.BeginRetry(host_.now + std::chrono::hours(1000)));
}

TEST(LoadRetry, TellsCausesThatMayGoFromThoseThatStay) {
  const auto may_go = [](absl::StatusCode code, const char* reason) {
    return MayGoByItself(Error(code, reason, "x"));
  };
  EXPECT_TRUE(may_go(absl::StatusCode::kResourceExhausted, "DISK_FULL"));
  EXPECT_TRUE(may_go(absl::StatusCode::kUnavailable, "LINK_BROKEN"));
  EXPECT_TRUE(may_go(absl::StatusCode::kDeadlineExceeded, "LOAD_TIMEOUT"));
  EXPECT_TRUE(may_go(absl::StatusCode::kFailedPrecondition, "MODEL_CHANGED"));
  EXPECT_FALSE(may_go(absl::StatusCode::kFailedPrecondition, "NUMERICS_CLASS"));
  EXPECT_FALSE(may_go(absl::StatusCode::kInvalidArgument, "BAD_LOAD"));
  EXPECT_FALSE(may_go(absl::StatusCode::kNotFound, "NO_BLOB"));
}

TEST(LoadRetry, NeverTriesAgainWithoutADelay) {
  LoadRetry retry({.first = nanoseconds(0)});
  retry.Failed(absl::UnavailableError("x"), true, seconds(1));
  EXPECT_FALSE(retry.due().has_value());
  EXPECT_EQ(retry.failed(), 1u);
}

}  // namespace
}  // namespace strata
