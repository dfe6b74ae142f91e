// Whether any placement satisfies a problem's memory and slowest_ms, and the extremes for which one
// does.
#ifndef STRATA_COORDINATOR_PLANNER_FEASIBILITY_H_
#define STRATA_COORDINATOR_PLANNER_FEASIBILITY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/planner/placement_problem.h"

namespace strata {

struct Feasibility {
  bool feasible = false;
  // Whether that is proven. Unequal layers and blocked links on many nodes are only searched.
  bool exact = true;
  std::vector<PlacedStage> stages;  // One placement, if feasible.
};
Feasibility Feasible(const PlacementProblem& problem);

// The most KV pages for which a placement exists; nothing if there is none for `least`.
std::optional<uint64_t> MostPages(PlacementProblem problem, uint64_t least, bool* exact);

// The smallest slowest_ms for which a placement exists, and a bound below it (equal when exact).
// Nothing if there is none at all.
struct SlowestBound {
  double ms = kNever;
  double lower_ms = 0;
};
std::optional<SlowestBound> SmallestSlowest(PlacementProblem problem);

// The least memory, in bytes, that would have to be added to `node` for a placement to exist.
uint64_t MissingBytes(const PlacementProblem& problem, size_t node);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_FEASIBILITY_H_
