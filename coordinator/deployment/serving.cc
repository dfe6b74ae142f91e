#include "coordinator/deployment/serving.h"

#include "common/status.h"
#include "coordinator/deployment/errors.h"

namespace strata {

Serving ServingOf(const Deployments& deployments, const std::string& model) {
  Serving serving;
  Deployment* deployment = deployments.OfModel(model);
  if (deployment == nullptr) {
    serving.problem = Error(absl::StatusCode::kFailedPrecondition, "MODEL_NOT_LOADED",
                            "model '" + model + "' is not loaded")
                          .Hint("load it with `strata model load " + model + "`");
  } else if (deployment->held()) {
    serving.problem = BeingChanged(model);
  } else if (!deployment->serves()) {
    serving.problem =
        !deployment->problem().ok()
            ? NotServed(model, deployment->problem())
            : Error(absl::StatusCode::kUnavailable, "MODEL_LOADING",
                    "model '" + model + "' is " + DeploymentStateName(deployment->state()))
                  .Hint("see `strata model show " + model + "`");
  } else {
    serving.engine = deployment->engine();
    serving.deployment = deployment->id();
    serving.numerics_class = deployment->plan().numerics_class().name();
    serving.plan_epoch = deployment->plan().epoch();
    serving.load_options = &deployment->load_options();
  }
  return serving;
}

}  // namespace strata
