#include "worker/backend/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/status.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

TEST(DeviceChoice, NamesDevicesByRankWithSharesOrWithout) {
  EXPECT_FALSE(ParseDevices("")->given());
  EXPECT_TRUE(ParseDevices("all")->all);
  const DeviceChoice two = *ParseDevices("3,0");
  ASSERT_EQ(two.named.size(), 2u);
  EXPECT_EQ(two.named[0].index, 3u);
  EXPECT_EQ(two.named[1].index, 0u);
  EXPECT_EQ(two.named[0].share, 0);
  const DeviceChoice stated = *ParseDevices("0=2,1=0.5");
  EXPECT_EQ(stated.named[0].share, 2);
  EXPECT_EQ(stated.named[1].share, 0.5);
  EXPECT_EQ(ParseDevices("7")->named[0].index, 7u);
}

TEST(DeviceChoice, RefusesWhatIsNoList) {
  for (const char* bad : {"gpu0", "0,", ",0", "0;1", "-1", "0=", "0=0", "0=-1", "0=x", "0=inf",
                          "0=nan", "99999999999", "all,0", " 0", "0=1=2"}) {
    const absl::Status status = ParseDevices(bad).status();
    EXPECT_EQ(ReasonOf(status), "BAD_DEVICES") << bad << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr(bad));
  }
}

TEST(DeviceChoice, NamesTheDeviceThatIsThereTwiceOrLacksAShare) {
  const absl::Status twice = ParseDevices("0,1,0").status();
  EXPECT_EQ(ReasonOf(twice), "BAD_DEVICES");
  EXPECT_THAT(twice.message(), HasSubstr("device 0 twice"));
  for (const char* some : {"0=2,1", "1,0=2"}) {
    const absl::Status status = ParseDevices(some).status();
    EXPECT_EQ(ReasonOf(status), "BAD_DEVICES") << some;
    EXPECT_THAT(status.message(), HasSubstr("of device 1 none")) << some;
  }
}

TEST(DeviceChoice, TakesAsManyDevicesAsAStageHasRanks) {
  EXPECT_EQ(ParseDevices("0,1,2,3,4,5,6,7")->named.size(), 8u);
  const absl::Status status = ParseDevices("0,1,2,3,4,5,6,7,8").status();
  EXPECT_EQ(ReasonOf(status), "RANKS_INVALID");
  EXPECT_THAT(Describe(status), HasSubstr("ranks=8"));
}

}  // namespace
}  // namespace strata
