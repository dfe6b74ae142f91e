// Has models whose nodes are lost placed on others, and those for which faster ones have come.
#ifndef STRATA_COORDINATOR_SERVICE_MODELS_REPLACEMENTS_H_
#define STRATA_COORDINATOR_SERVICE_MODELS_REPLACEMENTS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/planner/planner.h"
#include "coordinator/service/loop/blocking_tasks.h"
#include "coordinator/service/loop/event_loop.h"
#include "coordinator/service/models/models.h"
#include "strata/v1/types.pb.h"

namespace strata {

class Replacements {
 public:
  // Nothing is owned; all outlive this. `deployments` and `cluster` are the loop's.
  Replacements(nanoseconds step_timeout, EventLoop* loop, BlockingTasks* tasks, Models* models,
               const ClusterState* cluster, Deployments* deployments)
      : step_timeout_(step_timeout),
        loop_(loop),
        tasks_(tasks),
        models_(models),
        cluster_(cluster),
        deployments_(deployments) {}

  // On the loop: begins to look for nodes for what wants some by `now`. Plans are made beside the
  // loop, and taken up on it.
  void Tick(TimePoint now);

 private:
  void Begin(Deployment* deployment);
  // Nodes that may take its layers.
  PlannerCluster Left(const Deployment& deployment) const;
  void BeginBetter(Deployment* deployment);
  void OnBetter(uint64_t id, const absl::StatusOr<std::optional<v1::Plan>>& plan);
  // A plan was made, or there is none.
  void OnPlanned(uint64_t id, const absl::StatusOr<v1::Plan>& plan);

  const nanoseconds step_timeout_;
  EventLoop* const loop_;
  BlockingTasks* const tasks_;
  Models* const models_;
  const ClusterState* const cluster_;
  Deployments* const deployments_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MODELS_REPLACEMENTS_H_
