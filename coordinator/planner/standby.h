// On which nodes' disks a model's layers are kept beside those that compute them, so that the loss
// of a node moves no weights. Pure.
#ifndef STRATA_COORDINATOR_PLANNER_STANDBY_H_
#define STRATA_COORDINATOR_PLANNER_STANDBY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/planner/planner.h"
#include "coordinator/planner/replacement.h"
#include "strata/v1/types.pb.h"

namespace strata {

struct StandbyRequest {
  v1::Plan plan;  // As the model is placed.
  // The nodes that are there, with the memory that the model takes counted as free.
  PlannerCluster cluster;
  std::vector<uint64_t> layer_bytes;       // PlannerModel's.
  std::vector<uint64_t> stage_bytes = {};  // Of memory that each stage of the plan takes.
  NodeCaches caches = {};
  v1::LoadOptions options;
  uint32_t copies = 1;  // Of each layer, each on another node.
  // MakePlan over these nodes, or what else makes a plan of them.
  std::function<absl::StatusOr<v1::Plan>(const PlannerCluster& cluster,
                                         const v1::LoadOptions& options)>
      plan_over;
};

struct StandbyPart {
  uint32_t first_layer = 0;  // Inclusive.
  uint32_t last_layer = 0;   // Inclusive.
  std::string of_node;       // That computes them.
  std::string node;          // That is to keep them; "": none can.
  absl::Status why;          // Why none can.
};

// Where the layers of each node of the plan would go, were it lost (PlanReplacement): these nodes
// keep them. Each further copy is where they would go if those before could take no more. In order
// of the plan's stages.
std::vector<StandbyPart> PlanStandby(const StandbyRequest& request);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_STANDBY_H_
