// The coordinator's process: terms, membership and leases (the real ClusterState), the deployment
// of the one model, and what clients and the operator ask of it. As coordinator/service/coordinator
// does it, less its threads and services.
#ifndef STRATA_TESTS_SIM_SIM_COORDINATOR_H_
#define STRATA_TESTS_SIM_SIM_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/engine/engine.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/shard.pb.h"
#include "tests/sim/cluster.h"
#include "tests/sim/sim_deployment.h"

namespace strata::sim {

class SimCoordinator {
 public:
  explicit SimCoordinator(Cluster* cluster) : cluster_(cluster) {}

  bool up() const { return up_; }
  uint64_t life() const { return life_; }
  SimDeployment* deployment() const { return deployment_.get(); }

  // The process starts, in a new term, and loads what was loaded.
  void Start();
  // A `silent` end breaks no connection.
  void Stop(bool silent);

  // The operator.
  void LoadModel(const SimPlan& plan);  // As a new deployment; replaces one that is loaded.
  void UnloadModel();
  bool ResizeModel(uint64_t kv_pages);
  void Arm(const Fault& fault);  // Of the kinds that a Meddler knows.

  // Clients. UNAVAILABLE where nobody is there to serve.
  absl::Status Submit(SessionRequest request, std::shared_ptr<SessionSink> sink);
  bool Cancel(const std::string& key, const absl::Status& why);

  // Messages that arrive. Those of a worker's life that has ended are ignored.
  void OnMessage(Machine machine, uint64_t incarnation, const v1::WorkerMessage& message);
  void OnStreamEnded(Machine machine, uint64_t incarnation);
  void OnWhoAnswers(Machine machine, uint64_t incarnation);
  // To one life of the coordinator.
  void OnLinkOpen(const v1::LinkOpen& open, const std::function<void(bool)>& answer);
  void OnResult(uint64_t life, const std::shared_ptr<const ResultMessage>& result);
  void OnGarbledResult(uint64_t life, uint64_t deployment, uint64_t epoch);

 private:
  World& world() const { return *cluster_->world; }
  bool Knows(Machine machine, uint64_t incarnation) const;
  bool Serves(uint64_t deployment) const;
  void Send(Machine machine, const std::function<void()>& arrives);
  // On the control stream of this life.
  void Say(Machine machine, uint64_t incarnation, v1::CoordinatorMessage message);
  void EndStream(Machine machine, uint64_t incarnation, const absl::Status& why);
  void OnRegister(Machine machine, const v1::NodeInfo& info);
  void OnHeartbeat(Machine machine, uint64_t incarnation, const v1::Heartbeat& heartbeat);
  void ExpireLeases();
  void Lose(Machine machine);
  void LoadIfPossible();

  Cluster* const cluster_;
  SimStore store_;
  bool up_ = false;
  uint64_t life_ = 0;
  std::unique_ptr<SequenceNumbers> sequence_numbers_;
  std::unique_ptr<ClusterState> state_;
  std::map<Machine, uint64_t> streams_;  // Incarnations of live control streams.
  std::unique_ptr<SimDeployment> deployment_;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_COORDINATOR_H_
