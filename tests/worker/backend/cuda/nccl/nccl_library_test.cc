// NCCL's library where there is one, and what is said where there is none.
#include "worker/backend/cuda/nccl/nccl_library.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace strata::cuda {
namespace {

TEST(NcclLibrary, ThatIsNotThereIsNamed) {
  const auto calls = OpenNccl("libnccl-that-is-not-there.so.2");
  EXPECT_EQ(ReasonOf(calls.status()), kNcclAbsent);
  EXPECT_TRUE(absl::IsUnimplemented(calls.status()));
  EXPECT_NE(calls.status().message().find("libnccl-that-is-not-there.so.2"), std::string::npos)
      << calls.status();
  EXPECT_FALSE(DetailOf(calls.status()).hint().empty());
}

TEST(NcclLibrary, WithoutACallThatIsNeededIsRefusedByTheCallsName) {
  const auto calls = OpenNccl("libm.so.6");
  EXPECT_EQ(ReasonOf(calls.status()), kNcclAbsent);
  EXPECT_NE(calls.status().message().find("libm.so.6 has no ncclGetVersion"), std::string::npos)
      << calls.status();
}

TEST(NcclLibrary, HasAllCallsAndSaysItsVersion) {
  const auto calls = OpenNccl();
  if (!calls.ok()) {
    GTEST_SKIP() << calls.status();
  }
  int version = 0;
  EXPECT_EQ(calls->get_version(&version), NcclResult::kSuccess);
  EXPECT_EQ(CheckNcclVersion(*calls).ok(), version >= kNcclOldestVersion) << version;
  EXPECT_NE(std::string(calls->get_error_string(NcclResult::kInvalidUsage)), "");
  const absl::Status status =
      NcclError(*calls, nullptr, "ncclAllGather", NcclResult::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), kNcclFailed);
  EXPECT_NE(status.message().find("invalid argument"), std::string::npos) << status;
}

}  // namespace
}  // namespace strata::cuda
