// Has nodes keep layers that others compute, as coordinator/service/models/standbys.h does beside
// the event loop. What is planned, asked for and believed is the shipped code's.
#ifndef STRATA_TESTS_SIM_SIM_STANDBYS_H_
#define STRATA_TESTS_SIM_SIM_STANDBYS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployment_host.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/service/models/layer_caches.h"
#include "coordinator/service/models/standby_book.h"
#include "tests/sim/cluster.h"

namespace strata::sim {

// Of one life of the coordinator.
class SimStandbys {
 public:
  // All outlive it. `on_loop` runs what comes later, unless the life has ended by then.
  using OnLoopFn = std::function<void(const std::function<void()>&)>;
  SimStandbys(Cluster* cluster, const DeployedModel* model, ClusterState* state,
              Deployments* deployments, DeploymentHost* host, OnLoopFn on_loop)
      : cluster_(cluster),
        model_(model),
        state_(state),
        deployments_(deployments),
        host_(host),
        on_loop_(std::move(on_loop)) {}

  void Tick(TimePoint now);
  void OnKept(const std::string& node, uint64_t incarnation, const v1::LayerKept& kept,
              TimePoint now);

  // What the caches of these nodes have of the model's layers, as the planner sees it.
  NodeCaches Caches(const std::vector<PlannerNode>& nodes) const;
  std::vector<uint64_t> LayerBytes() const { return std::vector<uint64_t>(layers_.size(), 1); }
  // For people: all of it is kept as planned for what the model is placed on now.
  bool Whole(const Deployment& deployment) const;
  std::vector<v1::StandbyLayers> Describe(uint64_t deployment) const;

 private:
  struct Kept {
    StandbyBook book;
    std::string planned_for;  // Where the model is, and on which nodes it could be.
    bool planning = false;
  };

  World& world() const { return *cluster_->world; }
  std::map<std::string, uint64_t> Incarnations() const;
  std::string SituationOf(const Deployment& deployment) const;
  void BeginPlan(const Deployment& deployment, Kept* kept);
  void Tell(uint64_t deployment, Kept* kept, const std::vector<StandbyBook::Say>& says);

  Cluster* const cluster_;
  const DeployedModel* const model_;
  ClusterState* const state_;
  Deployments* const deployments_;
  DeploymentHost* const host_;
  const OnLoopFn on_loop_;
  const std::vector<LayerContent> layers_ = LayersOf(*model_, kNumericsClass);
  std::map<uint64_t, Kept> kept_;  // By deployment.
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_STANDBYS_H_
