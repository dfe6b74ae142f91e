#include "coordinator/service/calls/refusals.h"

#include <gtest/gtest.h>

#include <string>

#include "common/status.h"

namespace strata {
namespace {

absl::Status Why(const std::string& what) {
  return Error(absl::StatusCode::kFailedPrecondition, "ADVERTISED_ADDRESS", what);
}

TEST(RefusalsTest, TheNewestOfEachNodeIsKept) {
  Refusals refusals;
  EXPECT_TRUE(refusals.Recent().empty());
  refusals.Add("a", "10.0.0.2:7071", Why("first"));
  refusals.Add("b", "10.0.0.3:7071", Why("other"));
  refusals.Add("a", "10.0.0.2:7072", Why("second"));
  const auto recent = refusals.Recent();
  ASSERT_EQ(recent.size(), 2u);
  EXPECT_EQ(recent[1].node(), "a");
  EXPECT_EQ(recent[1].address(), "10.0.0.2:7072");
  EXPECT_EQ(recent[1].error().message(), "second");
  EXPECT_GE(recent[1].age_s(), 0);
}

TEST(RefusalsTest, OfThoseWithoutANameEachSentenceIsOne) {
  Refusals refusals;
  for (const char* what : {"x", "y", "x"}) refusals.Add("", "", Why(what));
  EXPECT_EQ(refusals.Recent().size(), 2u);
}

TEST(RefusalsTest, ThereAreOnlySoMany) {
  Refusals refusals;
  for (int i = 0; i < 1000; ++i) refusals.Add("n" + std::to_string(i), "", Why("x"));
  const auto recent = refusals.Recent();
  EXPECT_EQ(recent.size(), Refusals::kMost);
  EXPECT_EQ(recent.back().node(), "n999");
}

}  // namespace
}  // namespace strata
