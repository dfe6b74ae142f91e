// What requests are told of a model that does not serve them.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_ERRORS_H_
#define STRATA_COORDINATOR_DEPLOYMENT_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "common/status.h"

namespace strata {

// While Deployment::Hold.
inline absl::Status BeingChanged(const std::string& model) {
  return Error(absl::StatusCode::kUnavailable, "MODEL_LOADING",
               "model '" + model + "' is being unloaded or placed anew")
      .Hint("see `strata model show " + model + "`");
}

// What a request is told while its model is not there to serve it because of `why`: it may be sent
// again once that is mended, whatever code an operator is told it with.
inline absl::Status NotServed(const std::string& model, const absl::Status& why) {
  if (why.code() == absl::StatusCode::kUnavailable || why.code() == absl::StatusCode::kAborted) {
    return why;
  }
  v1::ErrorDetail detail = DetailOf(why);
  detail.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  detail.set_message("model '" + model +
                     "' is not served, since it could not be loaded: " + detail.message());
  detail.mutable_facts()->erase("stage");  // No stage was asked.
  return StatusOf(detail);
}

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_ERRORS_H_
