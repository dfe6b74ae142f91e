// The shape of plans. A v1::Plan holds pipelines of stages of ranks, but so far every plan has one
// pipeline, and every stage one rank. Code that relies on that reads and writes plans through these
// functions, so that whoever builds the second pipeline or the second rank finds all of it.
#ifndef STRATA_COMMON_PLAN_H_
#define STRATA_COMMON_PLAN_H_

#include "absl/status/status.h"
#include "common/check.h"
#include "strata/v1/types.pb.h"

namespace strata {

// The pipeline of a plan that this process made or has checked: there is exactly one.
inline const v1::PlanPipeline& OnlyPipeline(const v1::Plan& plan) {
  STRATA_CHECK(plan.pipelines_size() == 1);
  return plan.pipelines(0);
}
inline v1::PlanPipeline* OnlyPipeline(v1::Plan* plan) {
  STRATA_CHECK(plan->pipelines_size() == 1);
  return plan->mutable_pipelines(0);
}

// The rank of a stage of such a plan: exactly one, which computes all outputs of the stage.
inline const v1::PlanRank& OnlyRank(const v1::PlanStage& stage) {
  STRATA_CHECK(stage.ranks_size() == 1);
  return stage.ranks(0);
}
inline v1::PlanRank* OnlyRank(v1::PlanStage* stage) {
  STRATA_CHECK(stage->ranks_size() == 1);
  return stage->mutable_ranks(0);
}

// The same for showing what another process said: null where there is none, as in the plan of a
// model that is not loaded, and the first one where a newer version has several.
inline const v1::PlanPipeline* FindPipeline(const v1::Plan& plan) {
  return plan.pipelines_size() > 0 ? &plan.pipelines(0) : nullptr;
}
inline const v1::PlanRank* FindRank(const v1::PlanStage& stage) {
  return stage.ranks_size() > 0 ? &stage.ranks(0) : nullptr;
}

// Whether a plan from elsewhere, such as a file, has the shape that OnlyPipeline and OnlyRank
// assume. FAILED_PRECONDITION (PLAN_NOT_SUPPORTED).
absl::Status CheckPlanShape(const v1::Plan& plan);

}  // namespace strata

#endif  // STRATA_COMMON_PLAN_H_
