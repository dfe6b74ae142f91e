#include "coordinator/service/models/standbys.h"

#include <utility>

#include "common/app/log.h"
#include "common/plan.h"
#include "coordinator/service/models/placement.h"
#include "coordinator/service/models/standby_messages.h"

namespace strata {
namespace {

constexpr nanoseconds kLookEvery = milliseconds(200);

}  // namespace

std::map<std::string, uint64_t> Standbys::Incarnations() const {
  std::map<std::string, uint64_t> incarnations;
  for (const auto& [name, node] : cluster_->nodes()) {
    if (node.alive && !node.unfit() && !node.draining && !node.leaving()) {
      incarnations[name] = node.info.incarnation();
    }
  }
  return incarnations;
}

std::string Standbys::SituationOf(const Deployment& deployment) const {
  std::string text = std::to_string(deployment.load_options().standby()) + ";" +
                     std::to_string(deployment.load_options().kv_tokens()) + ";";
  for (const v1::PlanStage& stage : OnlyPipeline(deployment.plan()).stages()) {
    text += OnlyRank(stage).node() + ":" + std::to_string(stage.first_layer()) + "-" +
            std::to_string(stage.last_layer()) + ",";
  }
  for (const auto& [name, incarnation] : Incarnations()) {
    text += ";" + name + ":" + std::to_string(incarnation);
    // Another model's memory there changes what fits.
    for (const auto& [other, placement] : cluster_->nodes().at(name).placements) {
      text += other == deployment.id() ? "" : "+" + std::to_string(placement.bytes);
    }
  }
  return text;
}

void Standbys::Tick(TimePoint now) {
  for (auto it = kept_.begin(); it != kept_.end();) {
    const Deployment* deployment = deployments_->Find(it->first);
    if (deployment == nullptr || deployments_->stopping()) {
      Tell(it->first, &it->second, it->second.book.Clear());
      bytes_changed_ = true;
      it = kept_.erase(it);
    } else {
      ++it;
    }
  }
  for (const auto& [id, deployment] : deployments_->all()) {
    if (deployment->load_options().standby() == 0 || deployments_->stopping()) {
      continue;
    }
    Kept& kept = kept_[id];
    if (now < kept.look_again) {
      continue;
    }
    kept.look_again = now + kLookEvery;
    if (!deployment->serves() || deployment->state() != DeploymentState::kReady) {
      continue;  // What is kept stays, and loads come first.
    }
    if (!kept.planning && SituationOf(*deployment) != kept.planned_for) {
      BeginPlan(*deployment, &kept);
    }
    kept.book.Check(
        [&](const std::string& node, uint32_t layer) {
          return layer < kept.layers.size() &&
                 cluster_->holders()->HasLayer(node, kept.layers[layer].key);
        },
        now);
    Tell(id, &kept, kept.book.Next(now));
  }
  if (std::exchange(bytes_changed_, false)) {
    std::map<std::string, uint64_t> bytes;
    for (const auto& [id, kept] : kept_) {
      for (const v1::StandbyLayers& layers : kept.book.Describe()) {
        bytes[layers.node()] += layers.bytes();
      }
    }
    cluster_->SetStandbyBytes(bytes);
  }
}

void Standbys::BeginPlan(const Deployment& deployment, Kept* kept) {
  const auto model = models_->Get(deployment.model()->name);
  if (!model.ok()) {
    return;
  }
  kept->planning = true;
  kept->planned_for = SituationOf(deployment);
  tasks_->Run([this, id = deployment.id(), model = *model, plan = deployment.plan(),
               options = deployment.load_options(), cluster = cluster_->Snapshot(deployment.id()),
               holders = cluster_->holders()] {
    std::vector<uint64_t> stage_bytes;
    for (const PlacedPart& part : PartsOf(model->spec(), options, plan)) {
      stage_bytes.push_back(part.bytes);  // Its stages have one rank each.
    }
    Planned planned;
    planned.layers = LayersOf(*model, plan.numerics_class().name());
    planned.parts =
        PlanStandby({.plan = plan,
                     .cluster = cluster,
                     .layer_bytes = model->ForPlanner(options).layer_bytes,
                     .stage_bytes = std::move(stage_bytes),
                     .caches = CachesOf(planned.layers, cluster.nodes, *holders),
                     .options = options,
                     .copies = options.standby(),
                     .plan_over = [&](const PlannerCluster& nodes, const v1::LoadOptions& asked) {
                       return ChoosePlacement(*model, asked, nodes, step_timeout_);
                     }});
    loop_->Post([this, id, planned = std::move(planned)] { OnPlanned(id, planned); });
  });
}

void Standbys::OnPlanned(uint64_t id, Planned planned) {
  const auto it = kept_.find(id);
  if (it == kept_.end()) {
    return;
  }
  Kept& kept = it->second;
  kept.planning = false;
  bytes_changed_ = true;
  kept.layers = std::move(planned.layers);
  Tell(id, &kept, kept.book.Set(std::move(planned.parts), Incarnations()));
}

void Standbys::Tell(uint64_t deployment, Kept* kept, const std::vector<StandbyBook::Say>& says) {
  SayToKeepers(deployment, deployments_->Find(deployment), says, host_, &kept->book);
}

void Standbys::OnKept(const std::string& node, uint64_t incarnation, const v1::LayerKept& message,
                      TimePoint now) {
  const auto it = kept_.find(message.deployment());
  if (it == kept_.end() || !it->second.book.OnKept({node, incarnation}, message, now)) {
    return;
  }
  if (message.has_error()) {
    LogWarn({{"node", node},
             {"deployment", message.deployment()},
             {"layer", uint64_t{message.layer()}}},
            "a layer is not kept on a node for the loss of another: " + message.error().message());
  }
  it->second.look_again = {};  // The next one.
  bytes_changed_ = true;
}

std::vector<v1::StandbyLayers> Standbys::Describe(uint64_t deployment) const {
  const auto it = kept_.find(deployment);
  return it == kept_.end() ? std::vector<v1::StandbyLayers>() : it->second.book.Describe();
}

void Standbys::AddProblems(ProblemList* problems) const {
  for (const auto& [id, kept] : kept_) {
    const Deployment* deployment = deployments_->Find(id);
    if (deployment == nullptr) {
      continue;
    }
    const std::string& model = deployment->model()->name;
    for (const v1::StandbyLayers& layers : kept.book.Describe()) {
      if (layers.problem().empty()) {
        continue;
      }
      const std::string which = "layers " + std::to_string(layers.first_layer()) + "-" +
                                std::to_string(layers.last_layer()) + " of model " + model;
      problems->Add((layers.node().empty() ? "no node keeps " + which
                                           : "node " + layers.node() + " does not keep " + which) +
                        " for the loss of node " + layers.of_node() + ": " + layers.problem(),
                    "strata model show " + model);
    }
  }
}

}  // namespace strata
