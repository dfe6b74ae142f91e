#include "tests/sim/standby_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/plan.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_model.h"

namespace strata::sim {
namespace {

// Of some layers.
std::vector<std::string> KeysOf(const Cluster& cluster, uint32_t first_layer, uint32_t last_layer) {
  const std::vector<std::string> keys = LayerKeys(cluster.world->scenario.layers);
  return {keys.begin() + first_layer, keys.begin() + last_layer + 1};
}

bool HasRight(const Cluster& cluster, const std::string& node, uint32_t first_layer,
              uint32_t last_layer) {
  SimWorker* worker = cluster.worker(MachineOf(node));
  return worker->up() && worker->cache().HasRight(KeysOf(cluster, first_layer, last_layer));
}

}  // namespace

bool KeptIsThere(const Cluster& cluster) {
  if (!cluster.coordinator->KeepsAll()) {
    return false;
  }
  const std::vector<v1::StandbyLayers> kept = cluster.coordinator->Kept();
  return std::all_of(kept.begin(), kept.end(), [&](const v1::StandbyLayers& part) {
    if (part.node().empty()) {
      return true;  // No node can.
    }
    const std::vector<std::string> keys = KeysOf(cluster, part.first_layer(), part.last_layer());
    const SimCache& cache = cluster.worker(MachineOf(part.node()))->cache();
    return std::all_of(keys.begin(), keys.end(),
                       [&](const std::string& key) { return cache.HasPacked(key); });
  });
}

SimWorker* Expendable(const Cluster& cluster) {
  const Deployment* deployment = cluster.coordinator->deployment();
  if (deployment == nullptr || !deployment->avoided().empty()) {
    return nullptr;
  }
  // A node that only seems to have the layers may be chosen for them.
  const bool all_right =
      std::all_of(cluster.workers.begin(), cluster.workers.end(),
                  [](const auto& worker) { return !worker->up() || worker->cache().AllRight(); });
  if (!all_right) {
    return nullptr;
  }
  const auto& stages = OnlyPipeline(deployment->plan()).stages();
  const std::vector<v1::StandbyLayers> kept = cluster.coordinator->Kept();
  const bool computed_right =
      std::all_of(stages.begin(), stages.end(), [&](const v1::PlanStage& stage) {
        return HasRight(cluster, OnlyRank(stage).node(), stage.first_layer(), stage.last_layer());
      });
  for (const v1::PlanStage& stage : stages) {
    const std::string& node = OnlyRank(stage).node();
    const bool kept_right =
        std::all_of(kept.begin(), kept.end(), [&](const v1::StandbyLayers& part) {
          return part.of_node() != node ||
                 (!part.node().empty() &&
                  HasRight(cluster, part.node(), part.first_layer(), part.last_layer()));
        });
    if (computed_right && kept_right) {
      return cluster.worker(MachineOf(node));
    }
  }
  return nullptr;
}

bool ServesWithout(const Cluster& cluster, const SimWorker& lost) {
  const Deployment* deployment = cluster.coordinator->deployment();
  if (deployment == nullptr || !deployment->serves() ||
      deployment->state() != DeploymentState::kReady) {
    return false;
  }
  const auto& stages = OnlyPipeline(deployment->plan()).stages();
  return std::none_of(stages.begin(), stages.end(), [&](const v1::PlanStage& stage) {
    return OnlyRank(stage).node() == lost.name();
  });
}

uint64_t BlobsFetched(const Cluster& cluster) {
  uint64_t blobs = 0;
  for (const auto& worker : cluster.workers) {
    blobs += worker->blobs_fetched();
  }
  return blobs;
}

}  // namespace strata::sim
