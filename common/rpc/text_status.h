// Typed errors of what checks a call before any service has it: gRPC tells a code and a text of
// these alone, so reason and hint are lines of the text.
#ifndef STRATA_COMMON_RPC_TEXT_STATUS_H_
#define STRATA_COMMON_RPC_TEXT_STATUS_H_

#include <grpcpp/support/status.h>

#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace strata {

// "MESSAGE\nreason: REASON\nhint: HINT", the last line where there is a hint. FromGrpc reads it.
grpc::Status ToGrpcAsText(const absl::Status& status);

// What such a text says; none where it is another.
std::optional<absl::Status> FromText(absl::StatusCode code, std::string_view text);

}  // namespace strata

#endif  // STRATA_COMMON_RPC_TEXT_STATUS_H_
