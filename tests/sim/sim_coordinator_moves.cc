// Where a model's layers go, as somebody decides beside the event loop.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/planner/replacement.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_coordinator_life.h"
#include "tests/sim/sim_model.h"

namespace strata::sim {

// A plan takes its time, and nodes may come and go meanwhile.
void SimCoordinator::SearchNodes(uint64_t id) {
  life_->deployments.Find(id)->BeginSearch();
  std::vector<Machine> machines;
  for (const PlannerNode& node : life_->cluster.Snapshot(id).nodes) {
    if (!life_->deployments.Find(id)->avoided().contains(node.name)) {
      machines.push_back(MachineOf(node.name));
    }
  }
  // Few machines have not room for any layers now and then.
  const bool fits =
      !machines.empty() && (machines.size() >= world().scenario.stages || !world().random.OneIn(3));
  std::optional<v1::Plan> plan;
  if (world().scenario.caches) {
    plan = PlanByCaches(id);
  } else if (world().scenario.ranks > 1 && world().random.OneIn(2)) {
    plan = PlanInTheirPlace(id);
  } else if (fits) {
    plan = DrawPlanOn(world().scenario, std::move(machines), &world().random);
  }
  world().After(milliseconds(world().random.Between(1, 60)),
                [this, incarnation = incarnation_, id, plan = std::move(plan)] {
                  Turn(incarnation, [&] { OnPlanned(id, plan); });
                });
}

// As the shipped planner moves what is lost: to where the weights are.
std::optional<v1::Plan> SimCoordinator::PlanByCaches(uint64_t id) const {
  const Deployment* deployment = life_->deployments.Find(id);
  PlannerCluster left = life_->cluster.Snapshot(id);
  for (const std::string& node : deployment->avoided()) {
    DropNode(node, &left);
  }
  const absl::StatusOr<v1::Plan> plan =
      PlanReplacement({.before = deployment->plan(),
                       .nodes = left.nodes,
                       .layer_bytes = life_->standbys.LayerBytes(),
                       .caches = life_->standbys.Caches(left.nodes),
                       .options = deployment->load_options(),
                       .plan = [&](const v1::LoadOptions& options) {
                         return PlanAsked(world().scenario, left.nodes, options);
                       }});
  return plan.ok() ? std::optional(*plan) : std::nullopt;
}

// As the shipped planner does where no cache has anything: in the same groups first.
std::optional<v1::Plan> SimCoordinator::PlanInTheirPlace(uint64_t id) const {
  const Deployment* deployment = life_->deployments.Find(id);
  PlannerCluster left = life_->cluster.Snapshot(id);
  for (const std::string& node : deployment->avoided()) {
    DropNode(node, &left);
  }
  const absl::StatusOr<v1::Plan> plan =
      PlanReplacement({.before = deployment->plan(),
                       .nodes = left.nodes,
                       .layer_bytes = std::vector<uint64_t>(world().scenario.layers, 1),
                       .options = deployment->load_options(),
                       .plan = [&](const v1::LoadOptions& options) {
                         return PlanAsked(world().scenario, left.nodes, options);
                       }});
  return plan.ok() ? std::optional(*plan) : std::nullopt;
}

void SimCoordinator::OnPlanned(uint64_t id, std::optional<v1::Plan> plan) {
  Deployment* deployment = life_->deployments.Find(id);
  if (deployment == nullptr || !deployment->searches()) {
    return;
  }
  absl::Status status = Error(absl::StatusCode::kResourceExhausted, "NO_ROOM", "no room");
  if (plan.has_value()) {
    const bool leaves = deployment->state() == DeploymentState::kReady;
    status = Move(deployment, *std::move(plan), &world().random);
    if (status.ok() && leaves) world().Count(Rule::kMovedFromLeaving);
  }
  if (!status.ok()) {
    world().Tell([&] { return "no other nodes: " + std::string(status.message()); });
    world().Count(Rule::kFoundNoPlace);
    deployment->SearchFailed(status);
  }
}

absl::Status SimCoordinator::Move(Deployment* deployment, v1::Plan plan, Random* random) {
  for (v1::PlanStage& stage : *OnlyPipeline(&plan)->mutable_stages()) {
    for (v1::PlanRank& rank : *stage.mutable_ranks()) {
      const NodeRecord* node = life_->cluster.Find(rank.node());
      if (node == nullptr || !node->alive || node->leaving()) {
        return Error(absl::StatusCode::kAborted, "CLUSTER_CHANGED", "a node has left");
      }
      rank.set_incarnation(node->info.incarnation());
    }
  }
  uint64_t pages = deployment->load_options().kv_tokens() / kPageTokens;
  // The other nodes have little memory now and then, or not enough for both placements.
  if (random->OneIn(4)) pages = std::min<uint64_t>(pages, random->Between(2, 4));
  const bool pauses =
      random->OneIn(4) || HasSharedStage(deployment->plan()) || HasSharedStage(plan);
  const auto way = pauses ? Deployment::MoveWay::kPause : Deployment::MoveWay::kPrepare;
  return deployment->Move(WithPages(std::move(plan), pages), way);
}

// Some of what comes is faster.
void SimCoordinator::SearchBetter(uint64_t id) {
  life_->deployments.Find(id)->better().Asked();
  std::vector<Machine> machines;
  for (const PlannerNode& node : life_->cluster.Snapshot(id).nodes) {
    machines.push_back(MachineOf(node.name));
  }
  std::optional<v1::Plan> plan;
  if (!calm_ && !machines.empty() && world().random.OneIn(2)) {
    plan = DrawPlanOn(world().scenario, std::move(machines), &world().random);
  }
  world().After(milliseconds(world().random.Between(1, 60)),
                [this, incarnation = incarnation_, id, plan = std::move(plan)] {
                  Turn(incarnation, [&] {
                    Deployment* deployment = life_->deployments.Find(id);
                    if (deployment == nullptr || !deployment->better().asked()) {
                      return;
                    }
                    deployment->better().End();
                    if (plan.has_value() && Move(deployment, *plan, &world().random).ok()) {
                      deployment->MovesToBetter();
                      world().Count(Rule::kMovedToBetter);
                    }
                  });
                });
}

bool SimCoordinator::MoveModel(uint64_t random) {
  Deployment* deployment = Model();
  if (deployment == nullptr) {
    return false;
  }
  Random draw(random);
  absl::Status status;
  Turn(incarnation_, [&] {
    std::vector<Machine> machines;
    for (const PlannerNode& node : life_->cluster.Snapshot(deployment->id()).nodes) {
      machines.push_back(MachineOf(node.name));
    }
    if (machines.empty()) {
      status = Error(absl::StatusCode::kFailedPrecondition, "NO_NODES", "no node is there");
      return;
    }
    world().Tell([] { return std::string("FAULT: the operator moves the model"); });
    v1::Plan plan = deployment->plan();
    if (draw.OneIn(3)) {  // One stage alone; where that is too much, as drawn.
      const Machine machine = machines[draw.Below(machines.size())];
      auto* stages = OnlyPipeline(&plan)->mutable_stages();
      const bool used = PlanUses(plan, NodeName(machine));
      auto& stage = (*stages)[static_cast<int>(draw.Below(static_cast<uint32_t>(stages->size())))];
      const int ranks = stage.ranks_size();
      const int rank = ranks > 1 ? static_cast<int>(draw.Below(static_cast<uint32_t>(ranks))) : 0;
      if (!used) stage.mutable_ranks(rank)->set_node(NodeName(machine));
    } else {
      plan = DrawPlanOn(world().scenario, std::move(machines), &draw);
    }
    status = Move(deployment, std::move(plan), &draw);
  });
  if (!status.ok()) {
    world().Tell([&] { return "refused: " + std::string(status.message()); });
  }
  return status.ok();
}

}  // namespace strata::sim
