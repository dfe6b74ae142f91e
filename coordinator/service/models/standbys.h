// Has nodes keep packed weights of layers that others compute (--standby), for when these are lost.
#ifndef STRATA_COORDINATOR_SERVICE_MODELS_STANDBYS_H_
#define STRATA_COORDINATOR_SERVICE_MODELS_STANDBYS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/cluster/problem_list.h"
#include "coordinator/deployment/deployment_host.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/planner/standby.h"
#include "coordinator/service/loop/blocking_tasks.h"
#include "coordinator/service/loop/event_loop.h"
#include "coordinator/service/models/layer_caches.h"
#include "coordinator/service/models/models.h"
#include "coordinator/service/models/standby_book.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/membership.pb.h"

namespace strata {

// On the loop. Plans are made beside it.
class Standbys {
 public:
  // Nothing is owned; all outlive this. `deployments` and `cluster` are the loop's.
  Standbys(nanoseconds step_timeout, EventLoop* loop, BlockingTasks* tasks, Models* models,
           ClusterState* cluster, Deployments* deployments, DeploymentHost* host)
      : step_timeout_(step_timeout),
        loop_(loop),
        tasks_(tasks),
        models_(models),
        cluster_(cluster),
        deployments_(deployments),
        host_(host) {}

  // Plans anew for what serves on other nodes than were planned for, and has nodes keep the next
  // layers.
  void Tick(TimePoint now);
  void OnKept(const std::string& node, uint64_t incarnation, const v1::LayerKept& kept,
              TimePoint now);

  // For people: empty where nothing is kept for it.
  std::vector<v1::StandbyLayers> Describe(uint64_t deployment) const;
  void AddProblems(ProblemList* problems) const;

 private:
  struct Kept {
    StandbyBook book;
    std::string planned_for;  // Where the model is, and on which nodes it could be.
    bool planning = false;
    TimePoint look_again{};
    std::vector<LayerContent> layers;  // Of the model, as it is planned for.
  };
  struct Planned {
    std::vector<StandbyPart> parts;
    std::vector<LayerContent> layers;
  };

  // What a plan of standbys depends on.
  std::string SituationOf(const Deployment& deployment) const;
  void BeginPlan(const Deployment& deployment, Kept* kept);
  void OnPlanned(uint64_t id, Planned planned);
  void Tell(uint64_t deployment, Kept* kept, const std::vector<StandbyBook::Say>& says);
  std::map<std::string, uint64_t> Incarnations() const;

  const nanoseconds step_timeout_;
  EventLoop* const loop_;
  BlockingTasks* const tasks_;
  Models* const models_;
  ClusterState* const cluster_;
  Deployments* const deployments_;
  DeploymentHost* const host_;
  std::map<uint64_t, Kept> kept_;  // By deployment.
  bool bytes_changed_ = false;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MODELS_STANDBYS_H_
