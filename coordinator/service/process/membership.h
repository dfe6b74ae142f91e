// Members of the cluster as the process has them: moves what workers say to the event loop, and
// tells everything in the process that has to do with a node.
#ifndef STRATA_COORDINATOR_SERVICE_PROCESS_MEMBERSHIP_H_
#define STRATA_COORDINATOR_SERVICE_PROCESS_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/rpc/transport.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/members/control_streams.h"
#include "coordinator/members/members.h"
#include "coordinator/service/loop/event_loop.h"
#include "coordinator/service/models/record_writer.h"
#include "coordinator/service/models/standbys.h"
#include "coordinator/service/nodes/link_measurer.h"
#include "coordinator/service/nodes/membership_handler.h"
#include "coordinator/service/nodes/step_links.h"
#include "coordinator/service/running/model_checks.h"

namespace strata {

class Membership : public MembershipHandler {
 public:
  // The parts of the process that hear of nodes. Nothing is owned; all outlive the membership. All
  // but `step_links` are the loop's.
  struct Parts {
    ClusterState* cluster = nullptr;
    ControlStreams* streams = nullptr;
    Deployments* deployments = nullptr;
    LinkMeasurer* measurer = nullptr;
    ModelChecks* checks = nullptr;
    Standbys* standbys = nullptr;
    RecordWriter* records = nullptr;
    StepLinks* step_links = nullptr;
  };
  Membership(uint64_t term, std::string cluster_id, const Clock* clock, EventLoop* loop,
             const Parts& parts)
      : cluster_id_(std::move(cluster_id)),
        clock_(clock),
        loop_(loop),
        to_(parts),
        members_(term, parts.cluster, parts.deployments, parts.streams,
                 [this](const std::string& node) { to_.checks->OnNodeLost(node); }) {}

  // MembershipHandler: any thread but the loop's.
  void OnServing(IoLoop* loop) override { to_.step_links->OnServing(loop); }
  absl::Status MayJoin(const v1::NodeInfo& info) override;
  absl::StatusOr<v1::Registered> Join(const v1::NodeInfo& info, const LinkSpeed& speed,
                                      std::shared_ptr<NodeChannel> channel) override;
  void OnMessage(const std::string& node, uint64_t incarnation, v1::WorkerMessage message,
                 std::function<void()> done) override;
  void OnLeave(const std::string& node, uint64_t incarnation,
               std::shared_ptr<NodeChannel> channel) override;

  // On the loop: loses nodes whose lease lapsed, and forgets those that left long ago.
  void Tick(TimePoint now);
  // On the loop: a node's worker shows this certificate now.
  void SetCertificate(const std::string& node, const CertificateTimes& times);
  // On the loop: the certificate that the node's worker showed last; nullopt: it never joined.
  std::optional<CertificateTimes> CertificateOf(const std::string& node) const;

 private:
  // On the loop.
  absl::Status Admit(const v1::NodeInfo& info, const LinkSpeed& speed,
                     const std::shared_ptr<NodeChannel>& channel);
  void ForgetLongGone(TimePoint now);
  void Handle(const std::string& node, uint64_t incarnation, const v1::WorkerMessage& message);

  const std::string cluster_id_;
  const Clock* const clock_;
  EventLoop* const loop_;
  const Parts to_;

  // On the loop.
  Members members_;
  std::map<std::string, CertificateTimes> certificates_;  // Of workers, by name.
  TimePoint last_forgot_{};
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_PROCESS_MEMBERSHIP_H_
