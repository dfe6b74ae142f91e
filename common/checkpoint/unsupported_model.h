// What a model has that Strata cannot do, in the same words wherever it is found. Internal to the
// readers of checkpoints.
#ifndef STRATA_COMMON_CHECKPOINT_UNSUPPORTED_MODEL_H_
#define STRATA_COMMON_CHECKPOINT_UNSUPPORTED_MODEL_H_

#include <string>

#include "common/status.h"

namespace strata {

// UNIMPLEMENTED (UNSUPPORTED_MODEL). `what` names the field and its value.
inline Error UnsupportedModel(const std::string& what) {
  return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_MODEL",
               what + " is not supported yet");
}

}  // namespace strata

#endif  // STRATA_COMMON_CHECKPOINT_UNSUPPORTED_MODEL_H_
