// Single-stream latency on many nodes: good placements, without a proof.
#ifndef STRATA_COORDINATOR_PLANNER_LOCAL_SEARCH_H_
#define STRATA_COORDINATOR_PLANNER_LOCAL_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/planner/placement_problem.h"

namespace strata {

// From several starting orders of nodes: inserts, drops, replaces and swaps nodes and reverses runs
// of them while that helps. Layers are split over an order optimally: equal ones by filling, others
// by a DP over (node, layers done). Ends at `good_enough_ms`, or after `starts` orders or a fixed
// number of steps, so that the same problem gives the same placement. Latency kNever if nothing
// allowed was found.
Placement SearchLocally(const PlacementProblem& problem, double good_enough_ms, uint32_t starts);

// The latency of these stages' nodes with one more, `node`, at its best place among them and all
// layers split anew; kNever if it has none.
double LatencyWithNode(const PlacementProblem& problem, const std::vector<PlacedStage>& stages,
                       size_t node);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_LOCAL_SEARCH_H_
