// Why a model has no room on nodes, and how much is missing.
#ifndef STRATA_COORDINATOR_PLANNER_NO_ROOM_H_
#define STRATA_COORDINATOR_PLANNER_NO_ROOM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "coordinator/planner/placement_problem.h"

namespace strata {

struct NoRoom {
  absl::Status error;  // RESOURCE_EXHAUSTED (MODEL_DOES_NOT_FIT).
  // On the node that has most; 0: of the devices' memory nothing.
  uint64_t missing_bytes = 0;
};

// Of a problem that no placement solves, with `pages` for so many tokens.
NoRoom WhyNoRoom(const PlacementProblem& problem, uint64_t kv_tokens, uint32_t sessions);

// Of a stage whose node's host has not the memory to pack its weights.
absl::Status HostTooSmall(const PlacementProblem& problem, const PlacedStage& stage);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_NO_ROOM_H_
