// What a request for a plan asks for, completed and checked against the cluster.
#ifndef STRATA_COORDINATOR_PLANNER_ASKED_H_
#define STRATA_COORDINATOR_PLANNER_ASKED_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/planner/placement_problem.h"
#include "coordinator/planner/planner.h"

namespace strata {

struct AskedKv {
  v1::PlanGoal goal = v1::PLAN_GOAL_LATENCY;
  uint32_t sessions = 1;
  uint32_t context = 1;
  uint64_t tokens = 0;
  uint64_t pages = 0;  // That hold them: a sequence ends within a page.
};
AskedKv AskedKvOf(const v1::LoadOptions& options);
// RESOURCE_EXHAUSTED (KV_NEVER_FITS) where no plan grants so many pages.
absl::Status CheckAskedKv(const AskedKv& kv, const PlacementProblem& problem);

std::optional<size_t> FindNode(const PlannerCluster& cluster, const std::string& name);
// Indices of the nodes that --nodes allows, all without it. NOT_FOUND, RESOURCE_EXHAUSTED
// (NO_NODES).
absl::StatusOr<std::vector<size_t>> CandidatesOf(const PlannerCluster& cluster,
                                                 const v1::LoadOptions& options);

// Whether the node can compute with the activations that are asked for.
bool TakesActivations(const PlannerNode& node, const PlannerRequest& request);
// That `who` cannot: FAILED_PRECONDITION (BAD_ACTIVATIONS).
absl::Status NoInt8Activations(std::string_view who);

// Layers [begin, end) that --layers puts on one node, or on several together.
struct PinnedStage {
  std::vector<size_t> nodes;    // Of the cluster, the stage's first.
  std::vector<double> weights;  // Of their shares; empty: by the bandwidth at which they read.
  uint32_t begin = 0;
  uint32_t end = 0;
};
// In order of layers, which they cover. NOT_FOUND, INVALID_ARGUMENT (LAYERS_PINNED_WRONG),
// FAILED_PRECONDITION (BAD_ACTIVATIONS).
absl::StatusOr<std::vector<PinnedStage>> PinsOf(const PlannerCluster& cluster, uint32_t layers,
                                                const PlannerRequest& request);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_ASKED_H_
