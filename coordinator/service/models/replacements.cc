#include "coordinator/service/models/replacements.h"

#include <memory>
#include <utility>

#include "coordinator/service/models/placement.h"

namespace strata {

void Replacements::Tick(TimePoint now) {
  for (const uint64_t id : deployments_->WantPlacement(now)) {
    Begin(deployments_->Find(id));
  }
}

void Replacements::Begin(Deployment* deployment) {
  deployment->BeginSearch();
  const auto model = models_->Get(deployment->model()->name);
  if (!model.ok()) {
    deployment->SearchFailed(model.status());
    return;
  }
  tasks_->Run([this, id = deployment->id(), model = *model, before = deployment->plan(),
               options = deployment->load_options(), cluster = Left(*deployment),
               holders = cluster_->holders()] {
    auto plan = ChooseReplacement(*model, options, cluster, before, *holders, step_timeout_);
    loop_->Post([this, id, plan = std::move(plan)] { OnPlanned(id, plan); });
  });
}

PlannerCluster Replacements::Left(const Deployment& deployment) const {
  PlannerCluster cluster = cluster_->Snapshot(deployment.id());
  for (const std::string& node : deployment.avoided()) {
    DropNode(node, &cluster);
  }
  return cluster;
}

void Replacements::OnPlanned(uint64_t id, const absl::StatusOr<v1::Plan>& plan) {
  Deployment* deployment = deployments_->Find(id);
  // It may have come back to its nodes meanwhile.
  if (deployment == nullptr || !deployment->searches() || deployments_->stopping()) {
    return;
  }
  const absl::Status moved = plan.ok() ? Move(deployment, *plan) : plan.status();
  if (!moved.ok()) {
    deployment->SearchFailed(moved);
  }
}

absl::Status Replacements::Move(Deployment* deployment, const v1::Plan& plan) {
  RETURN_IF_ERROR(CheckStillThere(plan, *cluster_));
  ASSIGN_OR_RETURN(const auto model, models_->Get(deployment->model()->name));
  RETURN_IF_ERROR(CheckStillFits(*model, deployment->load_options(), plan,
                                 cluster_->Snapshot(deployment->id())));
  return deployment->Move(plan);
}

}  // namespace strata
