// Looks at a deployment after everything that happened to it: what must hold of its engine and its
// stages, and what the rules did. It changes nothing.
#ifndef STRATA_TESTS_SIM_DEPLOYMENT_WATCH_H_
#define STRATA_TESTS_SIM_DEPLOYMENT_WATCH_H_

#include <cstdint>
#include <optional>

#include "coordinator/deployment/deployment.h"
#include "coordinator/engine/engine.h"
#include "tests/sim/cluster.h"

namespace strata::sim {

class DeploymentWatch {
 public:
  // Both outlive it.
  DeploymentWatch(Cluster* cluster, const Deployment* deployment)
      : cluster_(cluster), deployment_(deployment) {}

  // `by_time`: what happened was that time passed.
  void Look(bool by_time);

 private:
  World& world() const { return *cluster_->world; }
  void CountState();
  void CheckMemory(const EngineSnapshot& snapshot);
  void CheckPages(const EngineSnapshot& snapshot);
  void CountWaiting(const EngineSnapshot& snapshot);
  void CheckIdle(const EngineSnapshot& snapshot);
  void CountWork(const EngineCounters& counters);

  Cluster* const cluster_;
  const Deployment* const deployment_;
  DeploymentState state_ = DeploymentState::kWaiting;  // When it was looked at last.
  bool undone_ = false;                                // Its newest resize.
  bool prepares_ = false;                              // Another placement.
  std::optional<v1::Plan> places_;                     // When it was ready last.
  bool awaiting_ = false;                              // Sessions waited for a lost node.
  EngineCounters seen_;
  PipelineState pipeline_ = PipelineState::kNew;
};

// Nothing runs, and the ledger says that every page is free, or cached.
bool IsIdle(const Deployment& deployment, TimePoint now);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_DEPLOYMENT_WATCH_H_
