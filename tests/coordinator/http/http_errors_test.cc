#include "coordinator/http/http_errors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/status.h"
#include "coordinator/deployment/errors.h"
#include "coordinator/http/json_body.h"
#include "tests/golden.h"

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
      {Code::kResourceExhausted, 503, "server_error", 503, "unhealthy"},
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

// ---- The table of reasons in docs/API.md.

struct Documented {
  absl::StatusCode code;
  int http_status;
};

absl::StatusCode CodeNamed(const std::string& name) {
  for (int code = 1; code <= 16; ++code) {
    if (absl::StatusCodeToString(static_cast<absl::StatusCode>(code)) == name) {
      return static_cast<absl::StatusCode>(code);
    }
  }
  ADD_FAILURE() << "no code is called " << name;
  return absl::StatusCode::kOk;
}

std::multimap<std::string, Documented> TableOfTheDocs() {
  std::multimap<std::string, Documented> table;
  const std::regex row(R"(^\| `([A-Z_]+)` \| ([0-9]{3}) \| (.*?) \| .*\|$)");
  const std::regex word("`([A-Z][A-Z_]+)`");
  for (const std::string& line : testing::ReadLinesOrFail(testing::SourcePath("docs/API.md"))) {
    std::smatch cells;
    if (!std::regex_match(line, cells, row)) continue;
    const std::string reasons = cells[3];
    for (auto it = std::sregex_iterator(reasons.begin(), reasons.end(), word);
         it != std::sregex_iterator(); ++it) {
      table.emplace((*it)[1], Documented{CodeNamed(cells[1]), std::stoi(cells[2])});
    }
  }
  return table;
}

TEST(HttpErrors, EveryReasonHasTheStatusThatTheDocsSay) {
  const auto table = TableOfTheDocs();
  EXPECT_GT(table.size(), 60u);
  for (const auto& [reason, documented] : table) {
    const absl::Status status = Error(documented.code, reason, "it is so");
    EXPECT_EQ(HttpStatusOf(status), documented.http_status) << reason;
    const bool later = documented.http_status == 429 || documented.http_status == 503;
    EXPECT_EQ(HeaderOf(ErrorAnswer(status, ErrorShape::kOpenAi), "Retry-After").empty(), !later)
        << reason;
  }
}

// Files whose errors requests are told, and the reasons in them that only operators or other
// processes are told.
constexpr const char* kRooms[] = {
    "common/rpc/call_threads.cc",
    "common/sampling_params.cc",
    "coordinator/engine",
    "coordinator/http",
    "coordinator/keys",
    "coordinator/deployment/deployment.cc",
    "coordinator/deployment/errors.h",
    "coordinator/deployment/recorded_epochs.cc",
    "coordinator/service/calls/inference_service.cc",
    "coordinator/service/constraints",
    "coordinator/service/loop/errors.h",
    "coordinator/service/loop/event_loop.cc",
    "coordinator/service/process/generation.cc",
    "coordinator/service/request/model_runtime.cc",
    "coordinator/service/request/request.cc",
    "coordinator/service/request/text_stream.cc",
    "coordinator/service/running/live_requests.cc",
    "text/call_grammar",
    "text/grammar",
    "text/masks",
    "text/template/chat_template.cc",
    "text/tokenizer/pipeline_tokenizer.cc",
    "text/tokenizer/pre_tokenized.cc",
    "text/tokenizer/word_models.cc",
};
constexpr const char* kOfOthers[] = {
    "BAD_FLAG",      "BAD_KEY_NAME",     "CANNOT_LISTEN",     "INVALID_VOCABULARY",
    "KEY_NOT_FOUND", "KV_IN_USE",        "LAST_ADMIN_KEY",    "LINK_NOT_EXPECTED",
    "NOT_READY",     "NUMERICS_CHANGED", "SESSION_AMBIGUOUS", "SESSION_NOT_FOUND",
};

TEST(HttpErrors, TheDocsKnowEveryReasonThatARequestMayBeTold) {
  const auto table = TableOfTheDocs();
  const std::regex error("Code::k([A-Za-z]+),\\s*\"([A-Z][A-Z_]+)\"");
  size_t found = 0;
  for (const char* room : kRooms) {
    std::vector<std::filesystem::path> files;
    const std::filesystem::path path = testing::SourcePath(room);
    if (std::filesystem::is_directory(path)) {
      for (const auto& entry : std::filesystem::directory_iterator(path)) {
        if (entry.is_regular_file()) files.push_back(entry.path());
      }
    } else {
      files.push_back(path);
    }
    for (const auto& file : files) {
      const std::string source = testing::ReadFileOrFail(file);
      for (auto it = std::sregex_iterator(source.begin(), source.end(), error);
           it != std::sregex_iterator(); ++it) {
        const std::string reason = (*it)[2];
        if (std::ranges::find(kOfOthers, reason) != std::end(kOfOthers)) continue;
        ++found;
        const auto [begin, end] = table.equal_range(reason);
        EXPECT_TRUE(std::any_of(begin, end,
                                [&](const auto& row) {
                                  std::string code(absl::StatusCodeToString(row.second.code));
                                  std::erase(code, '_');
                                  return absl::EqualsIgnoreCase(code, std::string((*it)[1]));
                                }))
            << file << ": docs/API.md does not have " << reason
            << " with this code; or is it a row of kOfOthers here, that no request is told?";
      }
    }
  }
  EXPECT_GT(found, 50u);
}

// Libraries send what is answered 429 again by themselves, for ever.
TEST(HttpErrors, WhatIsRefusedForEverIsNever429) {
  const auto table = TableOfTheDocs();
  for (const char* reason : {"TEMPLATE_LIMIT", "TOKENIZER_PATTERN_LIMIT", "KV_NEVER_FITS"}) {
    const auto row = table.find(reason);
    ASSERT_NE(row, table.end()) << reason;
    EXPECT_EQ(row->second.http_status, 400) << reason;
  }
}

// A disk is full, a file has other bytes, a worker says what is wrong: no request is to blame.
TEST(HttpErrors, AModelThatCouldNotBeLoadedIsNotServedForTheReasonOfThat) {
  const absl::Status whys[] = {
      Error(absl::StatusCode::kResourceExhausted, "DISK_FULL", "the disk of node 'a' is full"),
      Error(absl::StatusCode::kFailedPrecondition, "MODEL_CHANGED", "a file has other bytes"),
      Error(absl::StatusCode::kInternal, "BACKEND_FAILED", "stage 1 failed").Fact("stage", 1),
      Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE", "a tensor has another shape"),
  };
  for (const absl::Status& why : whys) {
    const absl::Status status = NotServed("m", why);
    EXPECT_EQ(HttpStatusOf(status), 503) << why;
    EXPECT_EQ(ReasonOf(status), ReasonOf(why));
    EXPECT_NE(Describe(status).find("model 'm' is not served"), std::string::npos);
    EXPECT_NE(Describe(status).find(std::string(why.message())), std::string::npos);
  }
  const absl::Status lost = Error(absl::StatusCode::kUnavailable, "NODE_LOST", "node 'a' is lost");
  EXPECT_EQ(NotServed("m", lost), lost);
}

}  // namespace
}  // namespace strata
