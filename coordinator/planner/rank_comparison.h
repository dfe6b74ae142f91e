// What a model would do over stages of several nodes, and what without. Pure.
#ifndef STRATA_COORDINATOR_PLANNER_RANK_COMPARISON_H_
#define STRATA_COORDINATOR_PLANNER_RANK_COMPARISON_H_

#include <cstdint>
#include <string>

#include "coordinator/planner/planner.h"

namespace strata {

// What a step of `rows` rows of one sequence takes through the plan's stages and back, in ms, as
// the planner predicts it. The plan's nodes are the cluster's.
double StepMs(const PlannerCluster& cluster, const PlannerModel& model,
              const PlannerRequest& request, const v1::Plan& plan, uint32_t rows);

// A sentence that compares MakePlan's `plan` with the one that `request` would have had with
// --ranks, of two nodes or of all, the better; or without where it has them. "": there is no such
// plan, `request` says where layers are, or there are more nodes than are looked at (16).
std::string CompareRanks(const PlannerCluster& cluster, const PlannerModel& model,
                         const PlannerRequest& request, const v1::Plan& plan);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_RANK_COMPARISON_H_
