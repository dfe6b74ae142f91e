// Which versions of Strata work together.
#ifndef STRATA_COORDINATOR_SERVICE_CALLS_VERSION_SKEW_H_
#define STRATA_COORDINATOR_SERVICE_CALLS_VERSION_SKEW_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace strata {

// Whether a worker of version `theirs` may join a coordinator of version `own` (MAJOR.MINOR.PATCH):
// of the same major version, and one minor version apart at most, so that a cluster can be upgraded
// machine by machine. FAILED_PRECONDITION (VERSION_SKEW) names both. A version that is none (a
// build of one's own) is let in.
absl::Status CheckVersionSkew(std::string_view own, std::string_view theirs,
                              const std::string& node);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_CALLS_VERSION_SKEW_H_
