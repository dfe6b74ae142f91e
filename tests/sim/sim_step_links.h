// The links of steps as the coordinator has them: it dials the first stage and is dialled by the
// last one. Between them and the deployments stand meddlers. As common/rpc's links, less their
// sockets.
#ifndef STRATA_TESTS_SIM_SIM_STEP_LINKS_H_
#define STRATA_TESTS_SIM_SIM_STEP_LINKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/frame.h"
#include "coordinator/deployment/deployment_host.h"
#include "coordinator/deployment/deployments.h"
#include "strata/v1/shard.pb.h"
#include "tests/sim/cluster.h"
#include "tests/sim/meddler.h"

namespace strata::sim {

// Those of one life of the coordinator.
class SimStepLinks {
 public:
  // Both outlive it. `on_loop` runs what comes later, unless the life has ended by then.
  using OnLoopFn = std::function<void(const std::function<void()>&)>;
  SimStepLinks(Cluster* cluster, Deployments* deployments, OnLoopFn on_loop)
      : cluster_(cluster), deployments_(deployments), on_loop_(std::move(on_loop)) {}

  // DeploymentHost::OpenLink.
  void Open(StepLinkRequest request,
            std::function<void(absl::StatusOr<std::unique_ptr<StepLink>> link)> on_opened);
  // The last stage opens its link of results; whether it may.
  bool Accept(const v1::LinkOpen& open);
  void OnResult(const ResultMessage& result);
  void OnGarbledResult(uint64_t deployment, uint64_t epoch);

  // Of the kinds that a Meddler knows; nothing when the deployment is none that runs.
  void Arm(const Fault& fault, uint64_t deployment) { MeddlerOf(deployment).Arm(fault); }

 private:
  class FirstLink;

  World& world() const { return *cluster_->world; }
  Meddler& MeddlerOf(uint64_t deployment);
  // The deployment's newest results link of this epoch; 0: none.
  uint64_t ResultsLink(uint64_t deployment, uint64_t epoch) const;

  Cluster* const cluster_;
  Deployments* const deployments_;
  const OnLoopFn on_loop_;
  std::map<uint64_t, Meddler> meddlers_;                       // By deployment.
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> results_;  // By deployment and epoch.
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_STEP_LINKS_H_
