// What no placement can be better than.
#ifndef STRATA_COORDINATOR_PLANNER_LOWER_BOUND_H_
#define STRATA_COORDINATOR_PLANNER_LOWER_BOUND_H_

#include "coordinator/planner/placement_problem.h"

namespace strata {

// A bound below the latency of every allowed placement, in ms. Equal layers: the exact minimum when
// a hop costs each node what its cheapest one does, so it is tight where links are alike.
double LatencyLowerBoundMs(const PlacementProblem& problem);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_LOWER_BOUND_H_
