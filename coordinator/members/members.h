// Who is a member of the cluster: workers join, speak, fall silent and leave, and deployments hear
// of it.
#ifndef STRATA_COORDINATOR_MEMBERS_MEMBERS_H_
#define STRATA_COORDINATOR_MEMBERS_MEMBERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/clock.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/members/control_streams.h"
#include "coordinator/members/node_channel.h"
#include "strata/v1/membership.pb.h"

namespace strata {

// A core: time is handed in, one thread.
class Members {
 public:
  // All outlive it. `on_lost` hears of every node that is lost, after the deployments.
  Members(uint64_t term, ClusterState* cluster, Deployments* deployments, ControlStreams* streams,
          std::function<void(const std::string& node)> on_lost)
      : term_(term),
        cluster_(cluster),
        deployments_(deployments),
        streams_(streams),
        on_lost_(std::move(on_lost)) {}

  // A worker wants to be a member, and to be spoken to by `channel`. An older stream of the same
  // incarnation is as good as gone. ClusterState::Join's errors.
  absl::Status Join(const v1::NodeInfo& info, std::shared_ptr<NodeChannel> channel, TimePoint now);
  // Everybody else knows the new member: what waits for it loads.
  void OnJoined(const std::string& node);
  // What a member is told first. Without the cluster's id.
  v1::Registered Welcome() const;
  // The stream of this incarnation with this channel ended by itself.
  void OnStreamEnded(const std::string& node, uint64_t incarnation,
                     const std::shared_ptr<NodeChannel>& channel);
  // Loses nodes whose lease lapsed. To be called as often as ClusterState::Expire.
  void Expire(TimePoint now);

  // What a member says of itself and its stages, on the stream of this incarnation; false: it is of
  // something else.
  bool OnMessage(const std::string& node, uint64_t incarnation, const v1::WorkerMessage& message,
                 TimePoint now);

 private:
  void OnHeartbeat(const std::string& node, uint64_t incarnation, const v1::Heartbeat& heartbeat,
                   TimePoint now);
  void Lose(const std::string& node, const std::string& why);

  const uint64_t term_;
  ClusterState* const cluster_;
  Deployments* const deployments_;
  ControlStreams* const streams_;
  const std::function<void(const std::string& node)> on_lost_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_MEMBERS_MEMBERS_H_
