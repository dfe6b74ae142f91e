#include "coordinator/http/http_errors.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "common/status.h"

namespace strata {
namespace {

using Code = absl::StatusCode;

// Of a request that can be served once something was loaded or has come back.
bool NotReady(std::string_view reason) {
  return reason == "MODEL_NOT_LOADED" || reason == "NOT_READY" || reason == "UNLOADED";
}

// Of a limit that has room again by itself, so that the same request may be sent again: clients'
// libraries do so by themselves for 429.
bool HasRoomAgain(std::string_view reason) {
  static constexpr std::string_view kReasons[] = {
      "KEY_REQUESTS_IN_FLIGHT",
      "KEY_REQUEST_RATE",
      "KEY_TOKEN_RATE",
      "QUEUE_FULL",
      "OVERLOADED",
      "TOO_MANY_CALLS",
      "INPUT_EMBEDDINGS_FULL",
      "HTTP_MEMORY_FULL",
      "SLOW_READER",
  };
  return std::ranges::find(kReasons, reason) != std::end(kReasons);
}

// A stage said it, of what the coordinator sent: whatever its code, the client is not to blame.
bool IsFaultOfStage(const absl::Status& status) {
  return !status.ok() && DetailOf(status).facts().contains("stage");
}

// The field that an engine's or a model's error is about: they know no HTTP.
std::string ParamOf(const absl::Status& status) {
  if (IsFaultOfStage(status)) {
    return "";
  }
  if (std::string field = FieldOf(status); !field.empty()) {
    return field;
  }
  const std::string reason = ReasonOf(status);
  static constexpr std::pair<std::string_view, std::string_view> kParams[] = {
      {"MODEL_NOT_FOUND", "model"},     {"MODEL_NOT_LOADED", "model"},     {"BAD_STOP", "stop"},
      {"TOO_MANY_STOPS", "stop"},       {"BAD_TOKEN_ID", "prompt"},        {"BAD_PROMPT", "prompt"},
      {"NO_CHAT_TEMPLATE", "messages"}, {"TOO_MANY_LOGPROBS", "logprobs"},
  };
  for (const auto& [of, param] : kParams) {
    if (reason == of) {
      return std::string(param);
    }
  }
  return "";
}

constexpr std::string_view kContextExceeded = "context_length_exceeded";

// The word that OpenAI's clients switch on.
std::string OpenAiCode(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  if (IsFaultOfStage(status)) {
    return absl::AsciiStrToLower({reason.data(), reason.size()});
  }
  if (reason == "CONTEXT_EXCEEDED" || reason == "KV_NEVER_FITS") {
    return std::string(kContextExceeded);
  }
  if (reason == "KEY_MISSING" || reason == "KEY_UNKNOWN" || reason == "KEY_REVOKED") {
    return "invalid_api_key";
  }
  if (reason == "KEY_REQUESTS_IN_FLIGHT" || reason == "KEY_REQUEST_RATE" ||
      reason == "KEY_TOKEN_RATE") {
    return "rate_limit_exceeded";
  }
  return absl::AsciiStrToLower({reason.data(), reason.size()});
}

std::string_view OpenAiType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string_view LoraxType(const absl::Status& error) {
  const int status = HttpStatusOf(error);
  switch (status) {
    case 401:
      return "authentication";
    case 429:
      return "overloaded";
    case 503:
      return "unhealthy";
    case 500:
      return "incomplete_generation";
    case 409:  // An id in flight is the request's own; what ran was ended from elsewhere.
      return error.code() == Code::kAborted ? "generation" : "validation";
    default:
      return status < 499 ? "validation" : "generation";
  }
}

int LoraxStatus(int status) {
  switch (status) {
    case 400:
      return 422;
    case 499:
    case 504:
      return 424;
    default:
      return status;
  }
}

// The limits of a key say when; else soon.
uint64_t RetryAfterSeconds(const absl::Status& status) {
  const v1::ErrorDetail detail = DetailOf(status);
  const auto found = detail.facts().find("retry_after_ms");
  uint64_t ms = 0;
  if (found == detail.facts().end() || !absl::SimpleAtoi(found->second, &ms)) {
    return 1;
  }
  return std::max<uint64_t>((ms + 999) / 1000, 1);
}

}  // namespace

int HttpStatusOf(const absl::Status& status) {
  if (IsFaultOfStage(status)) {
    return 500;
  }
  switch (status.code()) {
    case Code::kOk:
      return 200;
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
    case Code::kUnimplemented:
      return 400;
    case Code::kFailedPrecondition:
      return NotReady(ReasonOf(status)) ? 503 : 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kAborted:
      return NotReady(ReasonOf(status)) ? 503 : 409;
    case Code::kAlreadyExists:
      return 409;
    case Code::kResourceExhausted:
      return HasRoomAgain(ReasonOf(status)) ? 429 : 503;
    case Code::kCancelled:
      return 499;
    case Code::kUnavailable:
      return 503;
    case Code::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

OrderedJson OpenAiError(const absl::Status& status) {
  const std::string code = OpenAiCode(status);
  std::string message = Describe(status);
  if (code == kContextExceeded) {
    const v1::ErrorDetail detail = DetailOf(status);
    const auto most = detail.facts().find("limit_tokens");
    // Some clients know this one by OpenAI's words only.
    if (most != detail.facts().end()) {
      message = "This model's maximum context length is " + most->second + " tokens: " + message;
    }
  }
  const std::string param = ParamOf(status);
  OrderedJson error;
  error["message"] = std::move(message);
  error["type"] = OpenAiType(HttpStatusOf(status));
  error["param"] = param.empty() ? OrderedJson(nullptr) : OrderedJson(param);
  error["code"] = code.empty() ? OrderedJson(nullptr) : OrderedJson(code);
  return {{"error", std::move(error)}};
}

OrderedJson LoraxError(const absl::Status& status) {
  return {{"error", Describe(status)}, {"error_type", LoraxType(status)}};
}

HttpResponse ErrorAnswer(const absl::Status& status, ErrorShape shape) {
  const int code = HttpStatusOf(status);
  HttpResponse response;
  if (shape == ErrorShape::kOpenAi) {
    response.status = code;
    response.body = Dump(OpenAiError(status));
  } else {
    response.status = LoraxStatus(code);
    response.body = Dump(LoraxError(status));
  }
  if (code == 429 || code == 503) {
    response.headers.emplace_back("Retry-After", std::to_string(RetryAfterSeconds(status)));
  }
  if (code == 401) {
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  }
  return response;
}

}  // namespace strata
