// What the whole process says once it ends.
#ifndef STRATA_COORDINATOR_SERVICE_LOOP_ERRORS_H_
#define STRATA_COORDINATOR_SERVICE_LOOP_ERRORS_H_

#include "absl/status/status.h"
#include "common/status.h"

namespace strata {

inline absl::Status Stopping() {
  return Error(absl::StatusCode::kUnavailable, "STOPPING", "the coordinator is stopping")
      .Hint("send the request again once it is back");
}

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_LOOP_ERRORS_H_
