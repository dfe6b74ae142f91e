// Errors that several of the coordinator's files say.
#ifndef STRATA_COORDINATOR_SERVICE_ERRORS_H_
#define STRATA_COORDINATOR_SERVICE_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "common/status.h"

namespace strata {

inline absl::Status Stopping() {
  return Error(absl::StatusCode::kUnavailable, "STOPPING", "the coordinator is stopping")
      .Hint("send the request again once it is back");
}

// While Deployment::Hold.
inline absl::Status BeingChanged(const std::string& model) {
  return Error(absl::StatusCode::kUnavailable, "MODEL_LOADING",
               "model '" + model + "' is being unloaded or placed anew")
      .Hint("see `strata model show " + model + "`");
}

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_ERRORS_H_
