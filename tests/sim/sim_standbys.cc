#include "tests/sim/sim_standbys.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/plan.h"
#include "coordinator/planner/standby.h"
#include "coordinator/service/models/standby_messages.h"
#include "tests/sim/sim_model.h"

namespace strata::sim {

std::map<std::string, uint64_t> SimStandbys::Incarnations() const {
  std::map<std::string, uint64_t> incarnations;
  for (const auto& [name, node] : state_->nodes()) {
    if (node.alive && !node.leaving()) incarnations[name] = node.info.incarnation();
  }
  return incarnations;
}

std::string SimStandbys::SituationOf(const Deployment& deployment) const {
  std::string text;
  for (const v1::PlanStage& stage : OnlyPipeline(deployment.plan()).stages()) {
    text += OnlyRank(stage).node() + ":" + std::to_string(stage.first_layer()) + ",";
  }
  for (const auto& [name, incarnation] : Incarnations()) {
    text += ";" + name + ":" + std::to_string(incarnation);
  }
  return text;
}

NodeCaches SimStandbys::Caches(const std::vector<PlannerNode>& nodes) const {
  return CachesOf(layers_, nodes, *state_->holders());
}

void SimStandbys::Tick(TimePoint now) {
  for (auto it = kept_.begin(); it != kept_.end();) {
    const bool gone = deployments_->Find(it->first) == nullptr;
    if (gone) Tell(it->first, &it->second, it->second.book.Clear());
    it = gone ? kept_.erase(it) : std::next(it);
  }
  for (const auto& [id, deployment] : deployments_->all()) {
    const bool rests = deployment->serves() && deployment->state() == DeploymentState::kReady;
    if (deployment->load_options().standby() == 0 || !rests) {
      continue;
    }
    Kept& kept = kept_[id];
    if (!kept.planning && SituationOf(*deployment) != kept.planned_for) {
      BeginPlan(*deployment, &kept);
    }
    kept.book.Check(
        [this](const std::string& node, uint32_t layer) {
          return state_->holders()->HasLayer(node, layers_[layer].key);
        },
        now);
    Tell(id, &kept, kept.book.Next(now));
  }
}

void SimStandbys::BeginPlan(const Deployment& deployment, Kept* kept) {
  kept->planning = true;
  kept->planned_for = SituationOf(deployment);
  const PlannerCluster cluster = state_->Snapshot(deployment.id());
  std::vector<StandbyPart> parts =
      PlanStandby({.plan = deployment.plan(),
                   .cluster = cluster,
                   .layer_bytes = LayerBytes(),
                   .stage_bytes = std::vector<uint64_t>(
                       static_cast<size_t>(OnlyPipeline(deployment.plan()).stages_size()), 1),
                   .caches = Caches(cluster.nodes),
                   .options = deployment.load_options(),
                   .copies = deployment.load_options().standby(),
                   .plan_over = [this](const PlannerCluster& nodes, const v1::LoadOptions& asked) {
                     return PlanAsked(world().scenario, nodes.nodes, asked);
                   }});
  // A plan takes its time.
  world().After(milliseconds(world().random.Between(1, 30)),
                [this, on_loop = on_loop_, id = deployment.id(), parts = std::move(parts)] {
                  on_loop([this, id, parts] {
                    const auto it = kept_.find(id);
                    if (it == kept_.end()) {
                      return;
                    }
                    it->second.planning = false;
                    Tell(id, &it->second, it->second.book.Set(parts, Incarnations()));
                  });
                });
}

void SimStandbys::Tell(uint64_t deployment, Kept* kept, const std::vector<StandbyBook::Say>& says) {
  SayToKeepers(deployment, deployments_->Find(deployment), says, host_, &kept->book);
}

void SimStandbys::OnKept(const std::string& node, uint64_t incarnation, const v1::LayerKept& kept,
                         TimePoint now) {
  if (const auto it = kept_.find(kept.deployment()); it != kept_.end()) {
    it->second.book.OnKept({node, incarnation}, kept, now);
  }
}

std::vector<v1::StandbyLayers> SimStandbys::Describe(uint64_t deployment) const {
  const auto it = kept_.find(deployment);
  return it == kept_.end() ? std::vector<v1::StandbyLayers>() : it->second.book.Describe();
}

bool SimStandbys::Whole(const Deployment& deployment) const {
  const auto it = kept_.find(deployment.id());
  if (it == kept_.end() || it->second.planning ||
      it->second.planned_for != SituationOf(deployment)) {
    return false;
  }
  const std::vector<v1::StandbyLayers> all = it->second.book.Describe();
  return !all.empty() && std::all_of(all.begin(), all.end(), [](const v1::StandbyLayers& part) {
    return part.node().empty() || part.state() == "ready";
  });
}

}  // namespace strata::sim
