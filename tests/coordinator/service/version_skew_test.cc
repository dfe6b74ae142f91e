#include "coordinator/service/calls/version_skew.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status.h"

namespace strata {
namespace {

bool Joins(const char* own, const char* theirs) {
  const absl::Status status = CheckVersionSkew(own, theirs, "w");
  EXPECT_TRUE(status.ok() || ReasonOf(status) == "VERSION_SKEW") << status;
  return status.ok();
}

TEST(VersionSkewTest, OneMinorVersionApartWorksTogether) {
  EXPECT_TRUE(Joins("1.4.0", "1.4.9"));
  EXPECT_TRUE(Joins("1.4.0", "1.3.7"));
  EXPECT_TRUE(Joins("1.4.0", "1.5.0-rc1"));
}

TEST(VersionSkewTest, TwoMinorVersionsOrAMajorOneApartDoNot) {
  EXPECT_FALSE(Joins("1.4.0", "1.2.9"));
  EXPECT_FALSE(Joins("1.4.0", "1.6.0"));
  EXPECT_FALSE(Joins("1.4.0", "2.4.0"));
  EXPECT_FALSE(Joins("1.0.0", "0.9.0"));
}

TEST(VersionSkewTest, BothVersionsAreNamedAndTheNode) {
  const absl::Status status = CheckVersionSkew("1.4.0", "1.2.9", "w");
  EXPECT_THAT(Describe(status),
              ::testing::AllOf(::testing::HasSubstr("worker w"), ::testing::HasSubstr("1.2.9"),
                               ::testing::HasSubstr("1.4.0")));
  EXPECT_EQ(DetailOf(status).node(), "w");
}

TEST(VersionSkewTest, WhatIsNoVersionIsLetIn) {
  for (const char* version : {"", "main", "1", "1.", "1.x", "v1.9", "1.4x"}) {
    EXPECT_TRUE(Joins("1.4.0", version)) << version;
  }
}

}  // namespace
}  // namespace strata
