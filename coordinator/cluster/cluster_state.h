// What the coordinator knows of its nodes: who is there, how alive, how fast, how well linked.
// A core: time is handed in, one thread.
#ifndef STRATA_COORDINATOR_CLUSTER_CLUSTER_STATE_H_
#define STRATA_COORDINATOR_CLUSTER_CLUSTER_STATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/cluster/problem_list.h"
#include "coordinator/cluster/weight_holders.h"
#include "coordinator/planner/planner.h"
#include "strata/v1/admin.pb.h"
#include "strata/v1/membership.pb.h"

namespace strata {

struct LinkMeasure {
  double latency_ms = 0;
  double bytes_per_s = 0;
  v1::ErrorDetail error;  // reason empty: fine.
  uint64_t peer_incarnation = 0;
  bool ok() const { return error.reason().empty() && error.code() == 0; }
};

struct NodeRecord {
  v1::NodeInfo info;
  bool alive = false;  // Its control stream is open and its lease runs.
  bool leaving() const { return heartbeat.leaving(); }  // Its process was told to stop.
  // Its device has failed for good: of no use until its process starts anew.
  bool unfit() const { return heartbeat.has_unfit(); }
  bool draining = false;
  TimePoint last_heartbeat{};  // Of one that never was alive here: when it was restored.
  TimePoint lease_end{};
  bool lease_excused = false;  // Begun anew by a stall, without a heartbeat since.
  v1::Heartbeat heartbeat;
  std::map<std::string, LinkMeasure> links;  // From here, by peer; "" is the coordinator.
  // Links that it was asked to measure and has said nothing of yet, by peer; since when.
  std::map<std::string, TimePoint> measuring;
  TimePoint last_measured{};   // When it last said something of one.
  uint64_t standby_bytes = 0;  // Of its cache, kept for other nodes' layers.
  // Memory taken by each deployment, in bytes, with what `node list` says of it.
  struct Placement {
    uint64_t bytes = 0;
    uint64_t host_bytes = 0;  // Beside those of a device.
    std::string what;         // "NAME layers a-b"
    bool ready = false;
  };
  std::map<uint64_t, Placement> placements;
  std::map<uint64_t, Placement> prepared;  // The same of stages that are loaded beside these.
};

struct ClusterOptions {
  nanoseconds lease = std::chrono::seconds(5);
  nanoseconds heartbeat = std::chrono::seconds(1);
  // A node that left is forgotten after so long, unless something may be placed on it; 0: never.
  nanoseconds forget_after = std::chrono::hours(24);
  // A node that says nothing of links that it was asked to measure is a problem after so long.
  nanoseconds measure_timeout = std::chrono::seconds(30);
  // Less free on the disk of a node's --data-dir is a problem; 0: never.
  uint64_t least_free_disk_bytes = uint64_t{16} << 20;
};

class ClusterState {
 public:
  explicit ClusterState(ClusterOptions options) : options_(options) {}

  // A node whose advertised address answered as it should. ALREADY_EXISTS (NAME_TAKEN) when a live
  // node of another incarnation has the name.
  absl::Status Join(const v1::NodeInfo& info, TimePoint now);
  // The same check without joining, before anything is dialled.
  absl::Status MayJoin(const v1::NodeInfo& info) const;
  // Whether the node is unfit since this one.
  bool Heartbeat(const std::string& name, uint64_t incarnation, const v1::Heartbeat& heartbeat,
                 TimePoint now);
  // The control stream of that incarnation ended. True if the node was alive.
  bool Leave(const std::string& name, uint64_t incarnation);
  // Nodes whose lease lapsed since the last call, now no longer alive. To be called more often than
  // heartbeats come: after a longer pause this process stood still, and what nodes said meanwhile
  // may still be on its way to it. Their leases then begin anew, each at most once until the node
  // is heard again.
  std::vector<std::string> Expire(TimePoint now);
  // Forgets a node. NOT_FOUND, or FAILED_PRECONDITION while deployments use it.
  absl::Status Remove(const std::string& name);
  absl::Status SetDraining(const std::string& name, bool draining);
  // Nodes that are not alive and that no deployment was placed on; drained ones as well.
  std::vector<std::string> Gone() const;
  // Those of Gone that have been so for ClusterOptions::forget_after, and are not drained: that an
  // operator wants nothing on a node is remembered until it is removed.
  std::vector<std::string> Forgettable(TimePoint now) const;
  // `from` is asked to measure its link to `to`, perhaps again.
  void BeginMeasure(const std::string& from, const std::string& to, TimePoint now);
  // Since when the node owes measurements, and of which links; nullopt: it owes none.
  struct Owed {
    TimePoint since{};
    std::vector<std::string> peers;
  };
  std::optional<Owed> OwedMeasures(const NodeRecord& node) const;
  // Learnt at `now`.
  void SetLink(const std::string& from, const std::string& to, const LinkMeasure& measure,
               TimePoint now);
  void SetPlacement(const std::string& name, uint64_t deployment, NodeRecord::Placement placement);
  // The same of a stage that is loaded beside another.
  void SetPrepared(const std::string& name, uint64_t deployment, NodeRecord::Placement placement);
  void ClearPrepared(uint64_t deployment);
  void ClearPlacement(uint64_t deployment);
  // By node; others keep nothing.
  void SetStandbyBytes(const std::map<std::string, uint64_t>& bytes);

  // Which live nodes have which weights. Any thread may use it.
  WeightHolders* holders() const { return holders_.get(); }

  const NodeRecord* Find(const std::string& name) const;
  const std::map<std::string, NodeRecord>& nodes() const { return nodes_; }
  // A node that is known from before, not alive: shown as "lost" until it returns.
  void Restore(const v1::NodeInfo& info, bool draining, TimePoint now);

  // Live, fit, not draining nodes with their free memory and links, for planning. One that has not
  // said how fast it is counts as reading 5 GB/s and computing 50 Gflop/s, which few machines that
  // serve are slower than. `without` is a deployment whose own memory counts as free (it is being
  // planned again).
  PlannerCluster Snapshot(uint64_t without_deployment) const;
  // What `node list` shows.
  std::vector<v1::Node> Describe(TimePoint now) const;
  v1::Node Describe(const NodeRecord& node, TimePoint now) const;
  // What is wrong, and what mends it. `model_on` names a model that is to have layers on a node, or
  // gives "".
  using ModelOnFn = std::function<std::string(const std::string& node)>;
  void AddProblems(const ModelOnFn& model_on, ProblemList* problems) const;
  const ClusterOptions& options() const { return options_; }

 private:
  std::string StateOf(const NodeRecord& node) const;
  void ForgetMeasuresOf(const std::string& name);
  PlannerLink LinkBetween(const std::string& from, const std::string& to) const;

  const ClusterOptions options_;
  std::optional<TimePoint> last_expire_;
  std::map<std::string, NodeRecord> nodes_;
  const std::unique_ptr<WeightHolders> holders_ = std::make_unique<WeightHolders>();
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_CLUSTER_CLUSTER_STATE_H_
