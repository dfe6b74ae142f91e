// A client's request made complete: prompt tokenized, defaults taken, limits checked. Pure.
#ifndef STRATA_COORDINATOR_SERVICE_REQUEST_H_
#define STRATA_COORDINATOR_SERVICE_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/session.h"
#include "coordinator/service/model_runtime.h"
#include "strata/v1/inference.pb.h"

namespace strata {

struct ResolvedRequest {
  SessionRequest session;
  std::vector<std::string> stops;
  bool replace = false;
};

// What must be handed in, since it is not in the request.
struct RequestContext {
  uint64_t drawn_seed = 0;       // Used when the request has none.
  std::string drawn_request_id;  // Likewise.
  int64_t unix_seconds = 0;      // For chat templates.
  uint32_t default_max_tokens = 512;
};

// INVALID_ARGUMENT names the field and its limit; FAILED_PRECONDITION says what the model lacks.
absl::StatusOr<ResolvedRequest> ResolveRequest(const v1::GenerateRequest& request,
                                               const ModelRuntime& model,
                                               const RequestContext& context);

// 1..128 printable ASCII characters.
absl::Status CheckRequestId(const std::string& id);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_REQUEST_H_
