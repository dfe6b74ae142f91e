// What operators ask of nodes: which there are, that nothing new is placed on one, and that one is
// forgotten.
#ifndef STRATA_COORDINATOR_SERVICE_PROCESS_NODE_ADMIN_H_
#define STRATA_COORDINATOR_SERVICE_PROCESS_NODE_ADMIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/service/loop/event_loop.h"
#include "coordinator/service/models/model_loads.h"
#include "coordinator/service/models/record_writer.h"
#include "coordinator/store/state_store.h"
#include "strata/v1/admin.pb.h"

namespace strata {

// Any thread but the loop's; may wait for the store. All say UNAVAILABLE (STOPPING) once the
// coordinator ends, and RESOURCE_EXHAUSTED (OVERLOADED) while too many calls wait.
class NodeAdmin {
 public:
  // Nothing is owned; all outlive this. `cluster` and `deployments` are the loop's.
  NodeAdmin(const Clock* clock, EventLoop* loop, StateStore* store, RecordWriter* records,
            ClusterState* cluster, Deployments* deployments, ModelLoads* loads)
      : clock_(clock),
        loop_(loop),
        store_(store),
        records_(records),
        cluster_(cluster),
        deployments_(deployments),
        loads_(loads) {}

  absl::StatusOr<std::vector<v1::Node>> List();
  absl::StatusOr<v1::Node> Get(const std::string& name);
  // Nothing new is placed on one that drains, also after a restart.
  absl::StatusOr<v1::Node> SetDraining(const std::string& name, bool draining);
  // Forgets a node that left; models with layers on it are unloaded when `force`.
  absl::Status Remove(const std::string& name, bool force);
  // Forgets all nodes that left and that no model has layers on; their names.
  absl::StatusOr<std::vector<std::string>> RemoveGone();

 private:
  // The deployments that have layers on it. On the loop.
  absl::StatusOr<std::vector<uint64_t>> CheckRemove(const std::string& name, bool force) const;

  const Clock* const clock_;
  EventLoop* const loop_;
  StateStore* const store_;
  RecordWriter* const records_;
  ClusterState* const cluster_;
  Deployments* const deployments_;
  ModelLoads* const loads_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_PROCESS_NODE_ADMIN_H_
