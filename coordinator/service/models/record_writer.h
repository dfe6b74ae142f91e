// Writes what the coordinator knows of nodes and deployments to the store, behind the event loop,
// which never waits for a disk.
#ifndef STRATA_COORDINATOR_SERVICE_MODELS_RECORD_WRITER_H_
#define STRATA_COORDINATOR_SERVICE_MODELS_RECORD_WRITER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/service/loop/blocking_tasks.h"
#include "coordinator/service/loop/event_loop.h"
#include "coordinator/store/state_store.h"

namespace strata {

class RecordWriter {
 public:
  // Nothing is owned; all outlive the writer and what it runs on `tasks`. `cluster` and
  // `deployments` are the loop's.
  RecordWriter(StateStore* store, EventLoop* loop, BlockingTasks* tasks, const Clock* clock,
               const ClusterState* cluster, const Deployments* deployments)
      : store_(store),
        loop_(loop),
        tasks_(tasks),
        clock_(clock),
        cluster_(cluster),
        deployments_(deployments) {}

  // Whoever changes what the store keeps holds this from its check, on the loop, over its write, on
  // its own thread, to its effect, on the loop. Never locked on the loop.
  Mutex* changes() { return &changes_; }

  // On the loop: the record is written as it is by then, or taken out of the store, soon.
  void SaveNode(const std::string& node);
  void ForgetNode(const std::string& node);
  // Deployment::OnRecorded tells how it went.
  void SaveDeployment(uint64_t deployment);
  // On the loop: tries again what the store refused a while ago. When it wants to be asked next.
  std::optional<TimePoint> Tick(TimePoint now);

  // What waits to be written.
  struct Records {
    std::vector<StoredNode> nodes;
    std::vector<StoredDeployment> deployments;
    std::vector<std::string> forgotten;  // Nodes.
  };
  // On the loop, at the end: what waits is the caller's to hand to Write. Null: nothing does.
  std::optional<Records> Take();
  // On any thread but the loop's. False when some of it could not be written: it waits again.
  bool Write(const Records& records) STRATA_EXCLUDES(changes_);

 private:
  // Has what waits written, unless that is under way.
  void WriteSoon();
  void WriteWhatWaits() STRATA_EXCLUDES(changes_);
  bool WriteHeld(const Records& records) STRATA_REQUIRES(changes_);

  StateStore* const store_;
  EventLoop* const loop_;
  BlockingTasks* const tasks_;
  const Clock* const clock_;
  const ClusterState* const cluster_;
  const Deployments* const deployments_;
  Mutex changes_;

  // On the loop.
  std::set<std::string> unsaved_nodes_;
  std::set<uint64_t> unsaved_deployments_;
  std::set<std::string> forgotten_nodes_;  // The store may still have them.
  bool writing_ = false;                   // WriteWhatWaits runs.
  std::optional<TimePoint> write_again_;   // The store refused something.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MODELS_RECORD_WRITER_H_
