#include "common/status.h"

#include <gtest/gtest.h>

#include <string>

#include "common/utf8.h"

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

TEST(Status, BytesThatAreNoTextCostNeitherReasonNorHint) {
  const absl::Status status =
      Error(absl::StatusCode::kInvalidArgument, "BAD_TEMPLATE", "unknown name '\xff\xc3'")
          .Hint("see \xed\xa0\x80")
          .Fact("na\xefme", "\xf4\x90\x80\x80");
  EXPECT_EQ(ReasonOf(status), "BAD_TEMPLATE");
  EXPECT_EQ(Describe(status), "unknown name '\uFFFD\uFFFD'; see \uFFFD\uFFFD\uFFFD");
  v1::ErrorDetail read;
  EXPECT_TRUE(read.ParseFromString(DetailOf(status).SerializeAsString()));
  EXPECT_EQ(DetailOf(absl::InternalError("\x80")).message(), "\uFFFD");
  EXPECT_EQ(ReasonOf(Annotate(status, "model '\xfe'")), "BAD_TEMPLATE");
}

TEST(Utf8, WhatIsTextStaysAndWhatIsNotIsReplaced) {
  for (const std::string text :
       {"", "plain", "\u00e9\u0800\ud7ff\ue000\uffff", "\U00010000\U0010FFFF"}) {
    EXPECT_EQ(ReplaceInvalidUtf8(text), text);
  }
  EXPECT_EQ(ReplaceInvalidUtf8("a\xc0\x80z"), "a\uFFFD\uFFFDz") << "overlong";
  EXPECT_EQ(ReplaceInvalidUtf8("a\xe2\x82"), "a\uFFFD\uFFFD") << "cut";
  EXPECT_EQ(ReplaceInvalidUtf8("\xe2\x82(\xf5"), "\uFFFD\uFFFD(\uFFFD");
}

TEST(Status, PlainStatusGetsADetail) {
  EXPECT_EQ(DetailOf(absl::NotFoundError("x")).message(), "x");
  EXPECT_EQ(StatusOf(v1::ErrorDetail()).code(), absl::StatusCode::kUnknown);
}

TEST(Error, IsPrintableWhateverItQuotes) {
  const std::string bad = "a\x1b[31m\nb\xc2\x9b";
  const std::string good = "a\\x1b[31m\\nb\\u009b";
  const absl::Status status =
      Error(absl::StatusCode::kUnavailable, "X", bad).Node(bad).Limit(bad).Hint(bad).RequestId(bad);
  EXPECT_EQ(status.message(), good);
  EXPECT_EQ(DetailOf(status).hint(), good);
  EXPECT_EQ(Describe(status).find('\x1b'), std::string::npos);
  // One that came from another process, and one of another library.
  v1::ErrorDetail detail;
  detail.set_code(14);
  for (std::string* text : {detail.mutable_message(), detail.mutable_node(), detail.mutable_limit(),
                            detail.mutable_hint(), detail.mutable_request_id()}) {
    *text = bad;
  }
  EXPECT_EQ(Describe(StatusOf(detail)).find('\x1b'), std::string::npos);
  EXPECT_EQ(Describe(StatusOf(detail)).find('\n'), std::string::npos);
  EXPECT_EQ(DetailOf(absl::UnavailableError("x\x1b")).message(), "x\\x1b");
  EXPECT_EQ(DetailOf(Annotate(status, "w\x07")).message(), "w\\x07: " + good);
}

}  // namespace
}  // namespace strata
