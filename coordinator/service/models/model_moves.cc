#include "coordinator/service/models/model_moves.h"

#include <utility>

#include "common/app/log.h"
#include "common/status.h"
#include "coordinator/deployment/errors.h"
#include "coordinator/service/loop/errors.h"
#include "coordinator/service/models/placement.h"

namespace strata {

absl::Status BeginMove(const Models& models, const ClusterState& cluster, const v1::Plan& plan,
                       bool may_pause, Deployment* deployment, Deployment::MoveClass numerics) {
  RETURN_IF_ERROR(CheckStillThere(plan, cluster));
  ASSIGN_OR_RETURN(const auto model, models.Get(deployment->model()->name));
  const v1::LoadOptions& options = deployment->load_options();
  RETURN_IF_ERROR(CheckStillFits(*model, options, plan, cluster.Snapshot(deployment->id())));
  const absl::Status beside =
      CheckFitsBeside(model->spec(), options, deployment->plan(), plan, cluster);
  if (!may_pause) {
    RETURN_IF_ERROR(beside);
  }
  if (deployment->state() == DeploymentState::kReady && !beside.ok()) {
    LogInfo({{"model", model->name}, {"deployment", deployment->id()}}, Describe(beside));
  }
  return deployment->Move(
      plan, beside.ok() ? Deployment::MoveWay::kPrepare : Deployment::MoveWay::kPause, numerics);
}

absl::StatusOr<Deployment*> ModelMoves::Find(const std::string& name) const {
  RETURN_IF_ERROR(models_->Get(name).status());
  Deployment* deployment = deployments_->OfModel(name);
  if (deployment == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "MODEL_NOT_LOADED",
                 "model '" + name + "' is not loaded")
        .Hint("load it with `strata model load " + name + "`");
  }
  if (deployment->held()) {
    return BeingChanged(name);
  }
  return deployment;
}

absl::StatusOr<v1::Plan> ModelMoves::Plan(const v1::MoveModelRequest& request) {
  struct Asked {
    PlannerCluster cluster;
    v1::LoadOptions options;
  };
  ASSIGN_OR_RETURN(Asked asked, loop_->Ask([&]() -> absl::StatusOr<Asked> {
    ASSIGN_OR_RETURN(const Deployment* deployment, Find(request.model()));
    return Asked{cluster_->Snapshot(deployment->id()), deployment->load_options()};
  }));
  *asked.options.mutable_nodes() = request.nodes();
  *asked.options.mutable_layers() = request.layers();
  ASSIGN_OR_RETURN(const auto model, models_->Get(request.model()));
  return ChoosePlacement(*model, asked.options, std::move(asked.cluster), step_timeout_);
}

absl::StatusOr<v1::Plan> ModelMoves::Move(const v1::MoveModelRequest& request) {
  ASSIGN_OR_RETURN(const v1::Plan plan, Plan(request));
  return loop_->Ask([&]() -> absl::StatusOr<v1::Plan> {
    ASSIGN_OR_RETURN(Deployment * deployment, Find(request.model()));
    if (!deployment->prepares() && SamePlacement(deployment->plan(), plan)) {
      deployment->ForgetMoveProblem();
      return deployment->plan();
    }
    RETURN_IF_ERROR(BeginMove(*models_, *cluster_, plan, /*may_pause=*/true, deployment));
    return plan;
  });
}

absl::StatusOr<v1::LoadModelProgress> ModelMoves::Progress(const std::string& name) {
  return loop_
      ->Call([&]() -> absl::StatusOr<v1::LoadModelProgress> {
        ASSIGN_OR_RETURN(const Deployment* deployment, Find(name));
        if (deployment->state() == DeploymentState::kFailed ||
            deployment->state() == DeploymentState::kWaiting) {
          return deployment->problem().ok() ? Error(absl::StatusCode::kUnavailable, "WAITING",
                                                    "model '" + name + "' waits for its workers")
                                            : deployment->problem();
        }
        v1::LoadModelProgress progress;
        *progress.mutable_plan() =
            deployment->next() != nullptr ? *deployment->next() : deployment->plan();
        for (auto& worker : deployment->Progress()) {
          *progress.add_workers() = std::move(worker);
        }
        progress.set_ready(deployment->state() == DeploymentState::kReady &&
                           !deployment->prepares());
        if (progress.ready()) {
          RETURN_IF_ERROR(deployment->move_problem());
        }
        return progress;
      })
      .value_or(Stopping());
}

}  // namespace strata
