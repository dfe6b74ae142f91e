// Says for people why a plan is as it is.
#ifndef STRATA_COORDINATOR_PLANNER_EXPLAIN_H_
#define STRATA_COORDINATOR_PLANNER_EXPLAIN_H_

#include <string>
#include <vector>

#include "coordinator/planner/solve.h"

namespace strata {

// What an explanation is about. The problem has the solution's pages.
struct Explained {
  const PlacementProblem& problem;
  const Solution& solution;
  v1::PlanGoal goal = v1::PLAN_GOAL_LATENCY;
  uint64_t kv_tokens = 0;  // That the plan grants.
  uint64_t wanted_tokens = 0;
  double in_flight = 1;  // Steps, at most.
  bool pinned = false;
  // Of nodes of several numerics: how much better than those of one alone. 0: there is one.
  static constexpr double kNoKindFits = -1;
  double mixed_for = 0;
  // Nodes that hold no layer at the wanted KV, those whose hosts cannot pack one for their devices,
  // those of other numerics, and those that do not take int8 activations, which are asked for.
  std::vector<PlannerNode> too_small = {};
  std::vector<PlannerNode> hosts_too_small = {};
  std::vector<PlannerNode> other_numerics = {};
  std::vector<PlannerNode> floats_alone = {};
};

// The node that the goal's measure hangs on, by its place in the problem.
size_t LimitingNode(const PlacementProblem& problem, const Solution& solution, v1::PlanGoal goal);

// Sentences, the most important first.
std::vector<std::string> Explain(const Explained& explained);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_EXPLAIN_H_
