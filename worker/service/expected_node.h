// Whether a request that another process sent here was for this node.
#ifndef STRATA_WORKER_SERVICE_EXPECTED_NODE_H_
#define STRATA_WORKER_SERVICE_EXPECTED_NODE_H_

#include "absl/status/status.h"
#include "common/rpc/link_service.h"
#include "common/status.h"

namespace strata {

// WRONG_NODE, where a request's fields `expected_node` and `expected_incarnation` name another
// node, or another life of this one.
template <typename Request>
absl::Status CheckExpectedNode(const Request& request, const LinkHandler::Identity& self) {
  if (request.expected_node() != self.node || request.expected_incarnation() != self.incarnation) {
    return Error(absl::StatusCode::kFailedPrecondition, "WRONG_NODE",
                 "this is node '" + self.node + "' in another life, or another node")
        .Node(self.node);
  }
  return absl::OkStatus();
}

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_EXPECTED_NODE_H_
