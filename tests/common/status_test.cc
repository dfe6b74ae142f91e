#include "common/status.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

absl::Status NeverFits() {
  return Error(absl::StatusCode::kResourceExhausted, "KV_NEVER_FITS", "900 tokens never fit")
      .Node("a")
      .Limit("kv_tokens=512")
      .Hint("lower --max-tokens")
      .Fact("asked", 900);
}

TEST(Status, DetailSurvivesTheRoundTrip) {
  const absl::Status status = NeverFits();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const absl::Status again = StatusOf(DetailOf(status));
  EXPECT_EQ(again, status);
  EXPECT_EQ(ReasonOf(again), "KV_NEVER_FITS");
  EXPECT_EQ(DetailOf(again).facts().at("asked"), "900");
}

TEST(Status, DescriptionNamesWhatLimitAndNextAction) {
  EXPECT_EQ(Describe(NeverFits()),
            "900 tokens never fit (node a) [kv_tokens=512]; lower --max-tokens");
}

TEST(Status, TheNodeIsNamedUnlessTheMessageDoes) {
  const auto describe = [](const char* message) {
    return Describe(Error(absl::StatusCode::kUnavailable, "LOST", message).Node("a"));
  };
  EXPECT_EQ(describe("all at sea"), "all at sea (node a)");
  EXPECT_EQ(describe("node a is lost"), "node a is lost");
}

TEST(Status, AnnotationKeepsTheReason) {
  const absl::Status status = Annotate(NeverFits(), "loading m");
  EXPECT_EQ(ReasonOf(status), "KV_NEVER_FITS");
  EXPECT_EQ(status.message(), "loading m: 900 tokens never fit");
}

TEST(Status, PlainStatusGetsADetail) {
  EXPECT_EQ(DetailOf(absl::NotFoundError("x")).message(), "x");
  EXPECT_EQ(StatusOf(v1::ErrorDetail()).code(), absl::StatusCode::kUnknown);
}

}  // namespace
}  // namespace strata
