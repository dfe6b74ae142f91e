// Which engine serves a model's requests, and why none does.
#ifndef STRATA_COORDINATOR_DEPLOYMENT_SERVING_H_
#define STRATA_COORDINATOR_DEPLOYMENT_SERVING_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/engine/engine.h"

namespace strata {

// The engine that serves a model now.
struct Serving {
  Engine* engine = nullptr;
  uint64_t deployment = 0;
  std::string numerics_class;
  uint64_t plan_epoch = 0;
  // How the model was loaded; null where engine is.
  const v1::LoadOptions* load_options = nullptr;
  absl::Status problem;  // Why engine is null.
};

// Problems: FAILED_PRECONDITION (MODEL_NOT_LOADED), UNAVAILABLE (MODEL_LOADING), and what
// NotServed makes of a deployment's.
Serving ServingOf(const Deployments& deployments, const std::string& model);

}  // namespace strata

#endif  // STRATA_COORDINATOR_DEPLOYMENT_SERVING_H_
