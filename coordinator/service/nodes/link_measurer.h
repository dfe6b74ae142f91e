// Has links between nodes measured: when a node joins, while a link is broken, and after a fault of
// a pipeline over it.
#ifndef STRATA_COORDINATOR_SERVICE_NODES_LINK_MEASURER_H_
#define STRATA_COORDINATOR_SERVICE_NODES_LINK_MEASURER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/members/control_streams.h"
#include "strata/v1/membership.pb.h"

namespace strata {

// A core: one thread, the event loop's; time is handed in, and nothing waits.
class LinkMeasurer {
 public:
  // Measures the link from here to a node, elsewhere: OnMeasuredFromHere says how it went.
  using FromHereFn = std::function<void(const v1::NodeInfo& node)>;

  // A link whose measurement failed is measured again every `again`. Nothing is owned; all outlive
  // the measurer.
  LinkMeasurer(nanoseconds again, ClusterState* cluster, const Deployments* deployments,
               ControlStreams* streams, FromHereFn from_here)
      : again_(again),
        cluster_(cluster),
        deployments_(deployments),
        streams_(streams),
        from_here_(std::move(from_here)) {}

  // A node is there now: it measures its links to all live ones, and they theirs to it.
  void OnJoined(const std::string& node, TimePoint now);
  // The node measured a link, or could not.
  void OnMeasured(const std::string& node, const v1::PeerMeasured& measured, TimePoint now);
  // The coordinator measured its link to the node `info`, or could not.
  void OnMeasuredFromHere(const v1::NodeInfo& info, const absl::StatusOr<LinkMeasure>& measured,
                          TimePoint now);
  // Measures again what is due.
  void Tick(TimePoint now);

 private:
  void Ask(const NodeRecord& from, const NodeRecord& to, TimePoint now);
  void MeasureBroken(TimePoint now);
  void MeasureDoubtful(TimePoint now);

  const nanoseconds again_;
  ClusterState* const cluster_;
  const Deployments* const deployments_;
  ControlStreams* const streams_;
  const FromHereFn from_here_;
  TimePoint last_broken_{};                   // When broken links were measured.
  TimePoint last_doubtful_{};                 // Likewise those of pipelines with faults.
  std::map<uint64_t, uint64_t> epochs_seen_;  // Newest of each deployment that ran.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_NODES_LINK_MEASURER_H_
