// What of a model's layers nodes have in their caches, as the planner sees it.
#ifndef STRATA_COORDINATOR_SERVICE_MODELS_LAYER_CACHES_H_
#define STRATA_COORDINATOR_SERVICE_MODELS_LAYER_CACHES_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/cluster/weight_holders.h"
#include "coordinator/deployment/deployed_model.h"
#include "coordinator/planner/planner.h"
#include "coordinator/planner/replacement.h"

namespace strata {

// A layer by content, with the embedding and the head where it has them.
struct LayerContent {
  uint64_t key = 0;                                  // DigestPrefix of its LayerWeightsKey.
  std::vector<std::pair<uint64_t, uint64_t>> blobs;  // Digest and bytes of each tensor, once.
};

// All layers of the model, as they are computed in this numerics class. Takes as long as looking at
// every tensor does.
std::vector<LayerContent> LayersOf(const DeployedModel& model, std::string_view numerics_class);

// Any thread.
NodeCaches CachesOf(const std::vector<LayerContent>& layers, const std::vector<PlannerNode>& nodes,
                    const WeightHolders& holders);

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MODELS_LAYER_CACHES_H_
