// Has loaded models go to other nodes: what operators ask, and what every move goes through.
#ifndef STRATA_COORDINATOR_SERVICE_MODELS_MODEL_MOVES_H_
#define STRATA_COORDINATOR_SERVICE_MODELS_MODEL_MOVES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/service/loop/event_loop.h"
#include "coordinator/service/models/models.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/types.pb.h"

namespace strata {

// On the loop: has the deployment go to the nodes of `plan`, which load beside those that serve
// where all have the memory for that; else its requests wait while they load, if they `may_pause`.
// Errors: CheckStillThere's, CheckStillFits's, CheckFitsBeside's, Deployment::Move's.
absl::Status BeginMove(const Models& models, const ClusterState& cluster, const v1::Plan& plan,
                       bool may_pause, Deployment* deployment,
                       Deployment::MoveClass numerics = Deployment::MoveClass::kSame);

// The calls of operators: any thread but the loop's.
class ModelMoves {
 public:
  // Nothing is owned; all outlive this. `deployments` and `cluster` are the loop's.
  ModelMoves(nanoseconds step_timeout, EventLoop* loop, const Models* models,
             const ClusterState* cluster, Deployments* deployments)
      : step_timeout_(step_timeout),
        loop_(loop),
        models_(models),
        cluster_(cluster),
        deployments_(deployments) {}

  // Where the model would be, and nothing moves.
  absl::StatusOr<v1::Plan> Plan(const v1::MoveModelRequest& request);
  // Begins to move; answers with the plan. Progress says how it goes on.
  absl::StatusOr<v1::Plan> Move(const v1::MoveModelRequest& request);
  // Of the newest move, and why it was given up.
  absl::StatusOr<v1::LoadModelProgress> Progress(const std::string& name);

 private:
  // On the loop: the model's deployment, if it may be moved now.
  absl::StatusOr<Deployment*> Find(const std::string& name) const;

  const nanoseconds step_timeout_;
  EventLoop* const loop_;
  const Models* const models_;
  const ClusterState* const cluster_;
  Deployments* const deployments_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MODELS_MODEL_MOVES_H_
