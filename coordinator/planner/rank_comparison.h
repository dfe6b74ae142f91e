// What a model would do over stages of several nodes, and what without; and which of both is taken
// where nobody says. Pure.
#ifndef STRATA_COORDINATOR_PLANNER_RANK_COMPARISON_H_
#define STRATA_COORDINATOR_PLANNER_RANK_COMPARISON_H_

#include <cstdint>
#include <string>

#include "coordinator/planner/planner.h"

namespace strata {

// Ranks of workers have reached so much of the tokens a second that as many threads of one process
// gave, by which they are predicted (docs/TUNING.md): no more of a prediction is counted on.
inline constexpr double kReachOfRanks = 0.84;
// Ranks are taken unasked where by that they give so many times as many tokens a second.
inline constexpr double kWorthRanks = 1.2;

// What a step of `rows` rows of one sequence takes through the plan's stages and back, in ms, as
// the planner predicts it. The plan's nodes are the cluster's.
double StepMs(const PlannerCluster& cluster, const PlannerModel& model,
              const PlannerRequest& request, const v1::Plan& plan, uint32_t rows);

// Likewise what a prompt of `tokens` tokens takes, whose chunks are in all stages at once; for the
// goal throughput what its chunks take in the slowest stage.
double PromptMs(const PlannerCluster& cluster, const PlannerModel& model,
                const PlannerRequest& request, const v1::Plan& plan, uint32_t tokens);

// Of a request that leaves ranks and layers open: `plan`, which MakePlan made with one node a
// stage, or one with ranks where that is better by kWorthRanks and no prompt takes longer, each
// counting kReachOfRanks of what is predicted for ranks. Groups of two, of four and of all nodes
// (8) are tried. Not for the goal capacity, with --standby, for another numerics class, or where
// two nodes of a stage are of one machine, whose memory they share. With a sentence that says what
// ranks would give and why they are taken or not, unless there are none, or more nodes than are
// looked at (16).
v1::Plan WithRanksWhereTheyWin(const PlannerCluster& cluster, const PlannerModel& model,
                               const PlannerRequest& request, v1::Plan plan);

// Of a request with --ranks: a sentence that compares its `plan` with the best one of the groups
// above, or where it has ranks with the one without. "": there is no such plan, `request` says
// where layers are or leaves ranks open, or there are more nodes than are looked at.
std::string CompareRanks(const PlannerCluster& cluster, const PlannerModel& model,
                         const PlannerRequest& request, const v1::Plan& plan);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_RANK_COMPARISON_H_
