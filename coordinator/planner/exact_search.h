// Single-stream latency, proven minimal. For few nodes; see local_search.h for many.
#ifndef STRATA_COORDINATOR_PLANNER_EXACT_SEARCH_H_
#define STRATA_COORDINATOR_PLANNER_EXACT_SEARCH_H_

#include "coordinator/planner/placement_problem.h"

namespace strata {

// Equal layers, up to this many nodes: within 300 ms on one core.
inline constexpr size_t kMaxSubsetNodes = 14;

// Equal layers: for every set of nodes, the shortest path from the coordinator through it and back
// (Held and Karp, "A Dynamic Programming Approach to Sequencing Problems", 1962), and its layers
// filled onto the fastest nodes first, which is optimal whatever the order. First and last node are
// enumerated, as embedding and head change what they hold and cost. `known` is a placement that
// bounds the search (it may be empty); the best one is returned, with latency kNever if there is
// none.
Placement SearchSubsets(const PlacementProblem& problem, const Placement& known);

// Whether SearchLayers would take a reasonable time.
bool LayersSearchable(const PlacementProblem& problem);

// Any layers: the least time to reach each (set of nodes, last node, layers done).
Placement SearchLayers(const PlacementProblem& problem);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_EXACT_SEARCH_H_
