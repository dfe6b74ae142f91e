// Plans whose stages are computed by several nodes together: docs/internals/ranks.md. Pure.
#ifndef STRATA_COORDINATOR_PLANNER_RANKED_PLAN_H_
#define STRATA_COORDINATOR_PLANNER_RANKED_PLAN_H_

#include "absl/status/statusor.h"
#include "coordinator/planner/planner.h"

namespace strata {

// Whether a load asks for stages over several nodes: by --layers, where it has any, else by
// --ranks.
bool AsksForRanks(const v1::LoadOptions& options);

// The plan that such a load asks for: the groups of nodes that --layers names, or groups of
// --ranks nodes of one numerics, of which each has nodes near to its fastest one. Shares are by the
// bandwidth at which nodes read, unless --layers gives them. Errors: MakePlan's, and
// INVALID_ARGUMENT (RANKS_INVALID; BAD_STANDBY for --standby), FAILED_PRECONDITION
// (RANKS_NOT_SUPPORTED for a node that cannot compute together with others), RESOURCE_EXHAUSTED
// (RANKS_NEED_NODES).
absl::StatusOr<v1::Plan> MakeRankedPlan(const PlannerCluster& cluster, const PlannerModel& model,
                                        const PlannerRequest& request);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_RANKED_PLAN_H_
