#include "coordinator/http/http_errors.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "common/status.h"
#include "coordinator/http/json_body.h"

namespace strata {
namespace {

std::string HeaderOf(const HttpResponse& response, std::string_view name) {
  for (const auto& [header, value] : response.headers) {
    if (header == name) return value;
  }
  return "";
}

absl::Status OverLimit(const char* reason, uint64_t retry_after_ms) {
  return Error(absl::StatusCode::kResourceExhausted, reason, "API key 'a' is over it")
      .Limit("some=1")
      .Fact("retry_after_ms", retry_after_ms)
      .Hint("try again in a while");
}

TEST(HttpErrors, SayWhenALimitOfAKeyHasRoomAgainInWholeSeconds) {
  for (const char* reason : {"KEY_REQUESTS_IN_FLIGHT", "KEY_REQUEST_RATE", "KEY_TOKEN_RATE"}) {
    const absl::Status status = OverLimit(reason, 12'001);
    const HttpResponse openai = ErrorAnswer(status, ErrorShape::kOpenAi);
    EXPECT_EQ(openai.status, 429);
    EXPECT_EQ(HeaderOf(openai, "Retry-After"), "13");
    EXPECT_EQ(OrderedJson::parse(openai.body)["error"],
              OrderedJson::parse(R"({"message":")" + Describe(status) +
                                 R"(","type":"rate_limit_error","param":null,)"
                                 R"("code":"rate_limit_exceeded"})"));
    const HttpResponse lorax = ErrorAnswer(status, ErrorShape::kLorax);
    EXPECT_EQ(lorax.status, 429);
    EXPECT_EQ(HeaderOf(lorax, "Retry-After"), "13");
    EXPECT_EQ(
        OrderedJson::parse(lorax.body),
        OrderedJson::parse(R"({"error":")" + Describe(status) + R"(","error_type":"overloaded"})"));
  }
  EXPECT_EQ(
      HeaderOf(ErrorAnswer(OverLimit("KEY_REQUEST_RATE", 1), ErrorShape::kOpenAi), "Retry-After"),
      "1");
}

TEST(HttpErrors, OtherRefusalsMayBeTriedAgainSoon) {
  const absl::Status full =
      Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "the queue is full");
  const HttpResponse response = ErrorAnswer(full, ErrorShape::kOpenAi);
  EXPECT_EQ(HeaderOf(response, "Retry-After"), "1");
  EXPECT_EQ(OrderedJson::parse(response.body)["error"]["code"], "queue_full");
}

TEST(HttpErrors, AMissingUnknownOrRevokedKeyIsAnInvalidOne) {
  for (const char* reason : {"KEY_MISSING", "KEY_UNKNOWN", "KEY_REVOKED"}) {
    const absl::Status status = Error(absl::StatusCode::kUnauthenticated, reason, "no");
    const HttpResponse openai = ErrorAnswer(status, ErrorShape::kOpenAi);
    EXPECT_EQ(openai.status, 401);
    EXPECT_EQ(HeaderOf(openai, "WWW-Authenticate"), "Bearer");
    EXPECT_EQ(HeaderOf(openai, "Retry-After"), "");
    EXPECT_EQ(OrderedJson::parse(openai.body)["error"]["type"], "authentication_error");
    EXPECT_EQ(OrderedJson::parse(openai.body)["error"]["code"], "invalid_api_key");
    const HttpResponse lorax = ErrorAnswer(status, ErrorShape::kLorax);
    EXPECT_EQ(lorax.status, 401);
    EXPECT_EQ(OrderedJson::parse(lorax.body),
              OrderedJson::parse(R"({"error":"no","error_type":"authentication"})"));
  }
}

}  // namespace
}  // namespace strata
