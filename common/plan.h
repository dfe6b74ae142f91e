// The shape of plans. A v1::Plan holds pipelines of stages of ranks, but so far every plan has one
// pipeline. Code that relies on that reads and writes plans through these functions, so that
// whoever builds the second pipeline finds all of it; and code that is for stages of one rank alone
// says so by OnlyRank.
#ifndef STRATA_COMMON_PLAN_H_
#define STRATA_COMMON_PLAN_H_

#include <string>
#include <string_view>

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

// The first rank of a stage of such a plan: its worker is the stage's for coordinator and
// neighbours, which gets fences and steps; the other ranks follow it.
inline const v1::PlanRank& FirstRank(const v1::PlanStage& stage) {
  STRATA_CHECK(stage.ranks_size() >= 1);
  return stage.ranks(0);
}

// The rank of a stage that has no other: it computes all outputs of the stage.
inline const v1::PlanRank& OnlyRank(const v1::PlanStage& stage) {
  STRATA_CHECK(stage.ranks_size() == 1);
  return stage.ranks(0);
}
inline v1::PlanRank* OnlyRank(v1::PlanStage* stage) {
  STRATA_CHECK(stage->ranks_size() == 1);
  return stage->mutable_ranks(0);
}

// Whether a rank of the stage is on the node.
bool StageUses(const v1::PlanStage& stage, std::string_view node);
// Whether two stages are divided over the same nodes by the same shares, in the same order.
bool SameRanks(const v1::PlanStage& a, const v1::PlanStage& b);
// Whether a stage of the plan has more than one rank.
bool HasSharedStage(const v1::Plan& plan);
// For people: "a"; "a+b" where two nodes have ranks of the stage; "?" where it has none.
std::string NodesOf(const v1::PlanStage& stage);

// For showing what another process said: null where there is none, as in the plan of a model that
// is not loaded.
inline const v1::PlanPipeline* FindPipeline(const v1::Plan& plan) {
  return plan.pipelines_size() > 0 ? &plan.pipelines(0) : nullptr;
}
inline const v1::PlanRank* FindRank(const v1::PlanStage& stage) {
  return stage.ranks_size() > 0 ? &stage.ranks(0) : nullptr;
}

// Whether a plan from elsewhere, such as a file, has the shape that OnlyPipeline and FirstRank
// assume, and shares of ranks that are one behind another. FAILED_PRECONDITION
// (PLAN_NOT_SUPPORTED).
absl::Status CheckPlanShape(const v1::Plan& plan);

}  // namespace strata

#endif  // STRATA_COMMON_PLAN_H_
