// The clients: each sends its request, waits, cancels, sends again what a lost coordinator or a
// pipeline that was down took with it, and checks what it is told against the exact model.
#ifndef STRATA_TESTS_SIM_SIM_CLIENTS_H_
#define STRATA_TESTS_SIM_SIM_CLIENTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/model/model_spec.h"
#include "coordinator/engine/session.h"
#include "tests/sim/cluster.h"

namespace strata::sim {

class SimClients {
 public:
  // `cluster` outlives the clients. `model`: of the answers that are right.
  SimClients(Cluster* cluster, ModelSpec model);
  ~SimClients();

  // Sends it when its time comes.
  void Add(const ClientRequest& request);
  // The coordinator of this life ended; whoever waits for it learns that after `notice`.
  void OnCoordinatorLost(uint64_t life, nanoseconds notice);

  size_t waiting() const;
  std::string NamesOfWaiting() const;  // For a finding.
  // The newest added request was answered whole.
  bool NewestAnswered() const;

 private:
  struct Client;
  class Sink;

  World& world() const { return *cluster_->world; }
  void Submit(const std::shared_ptr<Client>& client);
  void Cancel(const std::shared_ptr<Client>& client);
  // `accepted`: it ran, or waited to.
  void OnAttemptFailed(const std::shared_ptr<Client>& client, const absl::Status& status,
                       bool accepted);
  void OnDone(const std::shared_ptr<Client>& client, const FinishInfo& info);
  void End(const std::shared_ptr<Client>& client, const std::string& how);
  // What was told so far must begin the answer.
  void CheckTokens(const Client& client);
  void CheckError(const Client& client, const absl::Status& status, bool accepted);

  Cluster* const cluster_;
  const ModelSpec model_;
  std::vector<std::shared_ptr<Client>> clients_;
};

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_CLIENTS_H_
