#include "coordinator/service/models/replacements.h"

#include <memory>
#include <utility>

#include "common/app/log.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/service/models/model_moves.h"
#include "coordinator/service/models/placement.h"

namespace strata {

void Replacements::Tick(TimePoint now) {
  for (const uint64_t id : deployments_->WantPlacement(now)) {
    Begin(deployments_->Find(id));
  }
  for (const uint64_t id : deployments_->WantBetter(now)) {
    BeginBetter(deployments_->Find(id));
  }
}

void Replacements::BeginBetter(Deployment* deployment) {
  deployment->better().Asked();
  const auto model = models_->Get(deployment->model()->name);
  if (!model.ok()) {
    deployment->better().End();
    return;
  }
  tasks_->Run([this, id = deployment->id(), model = *model, runs = deployment->plan(),
               options = deployment->load_options(),
               cluster = cluster_->Snapshot(deployment->id())] {
    auto plan = ChooseBetter(*model, options, cluster, runs, step_timeout_);
    loop_->Post([this, id, plan = std::move(plan)] { OnBetter(id, plan); });
  });
}

void Replacements::OnBetter(uint64_t id, const absl::StatusOr<std::optional<v1::Plan>>& plan) {
  Deployment* deployment = deployments_->Find(id);
  if (deployment == nullptr || !deployment->better().asked() || deployments_->stopping()) {
    return;
  }
  if (!plan.ok() || !plan->has_value() || deployment->held()) {
    deployment->better().End();
    return;
  }
  // Ranks cannot load beside what serves: a moment without requests is waited for. On no other
  // account do requests wait for a load.
  const bool pauses = HasSharedStage(**plan) || HasSharedStage(deployment->plan());
  if (pauses && deployment->PostponesBetter()) {
    return;
  }
  deployment->better().End();
  const absl::Status moves = BeginMove(*models_, *cluster_, **plan, pauses, deployment);
  if (moves.ok()) {
    LogInfo({{"model", deployment->model()->name}, {"deployment", id}},
            "faster nodes have come for the model");
    deployment->MovesToBetter();
  } else {
    LogInfo({{"model", deployment->model()->name}, {"deployment", id}},
            "there are faster nodes for the model, and it does not move there: " + Describe(moves));
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
  const absl::Status moved = plan.ok() ? BeginMove(*models_, *cluster_, *plan, /*may_pause=*/true,
                                                   deployment, Deployment::MoveClass::kAny)
                                       : plan.status();
  if (!moved.ok()) {
    deployment->SearchFailed(moved);
  }
}

}  // namespace strata
