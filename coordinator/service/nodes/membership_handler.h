// What happens to control streams, as the process hears of it.
#ifndef STRATA_COORDINATOR_SERVICE_NODES_MEMBERSHIP_HANDLER_H_
#define STRATA_COORDINATOR_SERVICE_NODES_MEMBERSHIP_HANDLER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/link.h"
#include "coordinator/members/node_channel.h"
#include "strata/v1/membership.pb.h"

namespace strata {

// Implemented by Membership, which moves everything to the event loop.
class MembershipHandler {
 public:
  virtual ~MembershipHandler() = default;
  // Before anything else: `loop` serves the control streams, until after the last call of these.
  virtual void OnServing(IoLoop* loop) = 0;

  // These may wait; each joining worker has a thread of its own.
  // Before anything is dialled: whether the name is free and the info makes sense.
  virtual absl::Status MayJoin(const v1::NodeInfo& info) = 0;
  // The advertised address answered as this node. On success the worker is a member, and what the
  // coordinator wants to tell it goes into `channel`.
  virtual absl::StatusOr<v1::Registered> Join(const v1::NodeInfo& info, const LinkSpeed& speed,
                                              std::shared_ptr<NodeChannel> channel) = 0;

  // These are called on the server's loop and must not wait.
  // `done` is to be called once, on any thread: the stream's next message is read then.
  virtual void OnMessage(const std::string& node, uint64_t incarnation, v1::WorkerMessage message,
                         std::function<void()> done) = 0;
  virtual void OnLeave(const std::string& node, uint64_t incarnation,
                       std::shared_ptr<NodeChannel> channel) = 0;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_NODES_MEMBERSHIP_HANDLER_H_
