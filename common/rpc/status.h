// absl::Status <-> grpc::Status. The strata.v1.ErrorDetail of a typed error travels in the call's
// trailers (grpc::Status::error_details).
#ifndef STRATA_COMMON_RPC_STATUS_H_
#define STRATA_COMMON_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace strata {

// Long messages are cut, since trailers are limited to 8 KiB.
grpc::Status ToGrpc(const absl::Status& status);

// A status without a detail of ours (the transport's own) gets its code's name as reason.
absl::Status FromGrpc(const grpc::Status& status);

// What gRPC says of a connection that could not be made, in few words.
std::string ConnectCause(const std::string& message);

}  // namespace strata

#endif  // STRATA_COMMON_RPC_STATUS_H_
