// Typed errors: an absl::Status whose payload is a strata.v1.ErrorDetail (reason, node, limit,
// hint). The same detail travels in gRPC trailers and in step results.
#ifndef STRATA_COMMON_STATUS_H_
#define STRATA_COMMON_STATUS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "strata/v1/types.pb.h"

namespace strata {

// Builds a typed error in one expression (bytes that are no UTF-8 become U+FFFD):
//   return Error(absl::StatusCode::kResourceExhausted, "KV_NEVER_FITS", "prompt + max_tokens ...")
//       .Limit("kv_tokens=8192").Hint("lower --max-tokens");
class Error {
 public:
  // `reason` is a stable UPPER_SNAKE_CASE word; `message` one sentence without a final stop.
  Error(absl::StatusCode code, std::string_view reason, std::string_view message);

  Error&& Node(std::string_view node) &&;
  Error&& Limit(std::string_view limit) &&;
  Error&& Hint(std::string_view hint) &&;
  Error&& RequestId(std::string_view request_id) &&;
  Error&& Fact(std::string_view key, std::string_view value) &&;
  Error&& Fact(std::string_view key, uint64_t value) &&;

  operator absl::Status() const;  // NOLINT(google-explicit-constructor)
  template <typename T>
  operator absl::StatusOr<T>() const {  // NOLINT(google-explicit-constructor)
    return static_cast<absl::Status>(*this);
  }
  v1::ErrorDetail Detail() const { return detail_; }

 private:
  v1::ErrorDetail detail_;
};

// The detail of a failed status; made from code and message where it carries none.
v1::ErrorDetail DetailOf(const absl::Status& status);

// The status that a detail describes; code 0 or unknown gives UNKNOWN.
absl::Status StatusOf(const v1::ErrorDetail& detail);

// The reason of a typed error, or "".
std::string ReasonOf(const absl::Status& status);

// One line for people: what, which limit, what to do.
std::string Describe(const absl::Status& status);

// Adds facts to an error that came from below: keeps code, reason and detail, prefixes the
// message with "`where`: ".
absl::Status Annotate(const absl::Status& status, std::string_view where);

}  // namespace strata

#define STRATA_CONCAT_INNER_(a, b) a##b
#define STRATA_CONCAT_(a, b) STRATA_CONCAT_INNER_(a, b)

// Returns the status of `expr` from the enclosing function unless it is ok.
#define RETURN_IF_ERROR(expr)                           \
  do {                                                  \
    if (absl::Status status_ = (expr); !status_.ok()) { \
      return status_;                                   \
    }                                                   \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): x = *F(), or returns its status.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL_(STRATA_CONCAT_(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                           \
  if (!tmp.ok()) {                             \
    return tmp.status();                       \
  }                                            \
  lhs = *std::move(tmp)

#endif  // STRATA_COMMON_STATUS_H_
