#include "common/plan.h"

#include <string>

#include "common/status.h"

namespace strata {

absl::Status CheckPlanShape(const v1::Plan& plan) {
  const auto refused = [](const std::string& what) {
    return Error(absl::StatusCode::kFailedPrecondition, "PLAN_NOT_SUPPORTED",
                 "the plan has " + what +
                     ", and this version knows one pipeline of stages on one "
                     "node each")
        .Hint("place the model anew, or run the version that made the plan");
  };
  if (plan.pipelines_size() != 1) {
    return refused(std::to_string(plan.pipelines_size()) + " pipelines");
  }
  const auto& stages = plan.pipelines(0).stages();
  if (stages.empty()) {
    return refused("no stages");
  }
  for (int i = 0; i < stages.size(); ++i) {
    if (stages[i].ranks_size() != 1) {
      return refused(std::to_string(stages[i].ranks_size()) + " ranks in stage " +
                     std::to_string(i));
    }
  }
  return absl::OkStatus();
}

}  // namespace strata
