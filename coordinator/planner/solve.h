// The best placement for a goal, on nodes of one numerics class.
#ifndef STRATA_COORDINATOR_PLANNER_SOLVE_H_
#define STRATA_COORDINATOR_PLANNER_SOLVE_H_

#include <cstdint>
#include <optional>

#include "coordinator/planner/placement_problem.h"

namespace strata {

struct Solution {
  Placement placement;
  uint64_t pages = 0;     // KV pages granted on every stage.
  double slowest_ms = 0;  // The slowest stage or transfer.
  double gap = 0;         // Of the goal's measure, over a bound; 0: proven.
};

// `problem.pages` must fit in any case. Nothing if no placement was found.
std::optional<Solution> Solve(PlacementProblem problem, v1::PlanGoal goal);

// The same for stages that are given; they must be allowed. `problem` as for Solve.
Solution SolvePinned(const PlacementProblem& problem, v1::PlanGoal goal,
                     const std::vector<PlacedStage>& stages);

// Whether `a` serves the goal better than `b`.
bool Better(v1::PlanGoal goal, const Solution& a, const Solution& b);

// Steps a second with one token each, `in_flight` steps at a time.
double StepsPerSecond(const Solution& solution, double in_flight);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_SOLVE_H_
