#include "coordinator/http/http_errors.h"

#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
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

// What each code is to a client; and that all are one where a stage says them.
TEST(HttpErrors, AStagesFaultIsTheServersWhateverItsCode) {
  struct Row {
    absl::StatusCode code;
    int status;
    const char* openai;
    int lorax_status;
    const char* lorax;
  };
  using Code = absl::StatusCode;
  const Row rows[] = {
      {Code::kCancelled, 499, "invalid_request_error", 424, "generation"},
      {Code::kUnknown, 500, "server_error", 500, "incomplete_generation"},
      {Code::kInvalidArgument, 400, "invalid_request_error", 422, "validation"},
      {Code::kDeadlineExceeded, 504, "server_error", 424, "generation"},
      {Code::kNotFound, 404, "not_found_error", 404, "validation"},
      {Code::kAlreadyExists, 409, "invalid_request_error", 409, "validation"},
      {Code::kPermissionDenied, 403, "permission_error", 403, "validation"},
      {Code::kResourceExhausted, 429, "rate_limit_error", 429, "overloaded"},
      {Code::kFailedPrecondition, 400, "invalid_request_error", 422, "validation"},
      {Code::kAborted, 409, "invalid_request_error", 409, "generation"},
      {Code::kOutOfRange, 400, "invalid_request_error", 422, "validation"},
      {Code::kUnimplemented, 400, "invalid_request_error", 422, "validation"},
      {Code::kInternal, 500, "server_error", 500, "incomplete_generation"},
      {Code::kUnavailable, 503, "server_error", 503, "unhealthy"},
      {Code::kDataLoss, 500, "server_error", 500, "incomplete_generation"},
      {Code::kUnauthenticated, 401, "authentication_error", 401, "authentication"},
  };
  EXPECT_EQ(std::size(rows), 16u) << "all but OK";
  const auto expect = [](const absl::Status& status, const Row& row) {
    const HttpResponse openai = ErrorAnswer(status, ErrorShape::kOpenAi);
    EXPECT_EQ(openai.status, row.status) << status;
    const OrderedJson error = OrderedJson::parse(openai.body)["error"];
    EXPECT_EQ(error["type"], row.openai) << status;
    EXPECT_EQ(error["message"], Describe(status));
    const HttpResponse lorax = ErrorAnswer(status, ErrorShape::kLorax);
    EXPECT_EQ(lorax.status, row.lorax_status) << status;
    EXPECT_EQ(OrderedJson::parse(lorax.body)["error_type"], row.lorax) << status;
    EXPECT_EQ(HeaderOf(openai, "Retry-After").empty(), row.status != 429 && row.status != 503);
    EXPECT_EQ(HeaderOf(openai, "WWW-Authenticate").empty(), row.status != 401);
    return error;
  };
  for (const Row& row : rows) {
    expect(Error(row.code, "SOME_REASON", "it failed"), row);
    // These reasons mean a field of the client's, a wrong key or a limit where no stage says them.
    for (const char* reason : {"POSITION_MISMATCH", "BAD_TOKEN_ID", "CONTEXT_EXCEEDED",
                               "KEY_UNKNOWN", "KEY_TOKEN_RATE", "MODEL_NOT_LOADED", "UNLOADED"}) {
      const absl::Status of_stage =
          Error(row.code, reason, "stage 1 failed").Fact("stage", 1).Fact("field", "prompt");
      const OrderedJson error =
          expect(of_stage, {row.code, 500, "server_error", 500, "incomplete_generation"});
      EXPECT_EQ(error["code"], absl::AsciiStrToLower(reason));
      EXPECT_EQ(error["param"], nullptr);
    }
  }
}

TEST(HttpErrors, WhatWasTakenFromUnderARequestIsNoFaultOfItsOwn) {
  const auto expect = [](const char* reason, int status, const char* lorax_type,
                         const char* retry_after) {
    const absl::Status ended = Error(absl::StatusCode::kAborted, reason, "it is gone");
    const HttpResponse openai = ErrorAnswer(ended, ErrorShape::kOpenAi);
    EXPECT_EQ(openai.status, status) << reason;
    EXPECT_EQ(HeaderOf(openai, "Retry-After"), retry_after) << reason;
    EXPECT_EQ(OrderedJson::parse(openai.body)["error"]["code"], absl::AsciiStrToLower(reason));
    const HttpResponse lorax = ErrorAnswer(ended, ErrorShape::kLorax);
    EXPECT_EQ(lorax.status, status) << reason;
    EXPECT_EQ(HeaderOf(lorax, "Retry-After"), retry_after) << reason;
    EXPECT_EQ(OrderedJson::parse(lorax.body)["error_type"], lorax_type) << reason;
  };
  expect("UNLOADED", 503, "unhealthy", "1");  // By an operator.
  expect("REPLACED", 409, "generation", "");  // By a newer request with its id.
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
