// The control streams of workers that are members: which incarnation of a node is spoken to, and by
// which channel.
#ifndef STRATA_COORDINATOR_MEMBERS_CONTROL_STREAMS_H_
#define STRATA_COORDINATOR_MEMBERS_CONTROL_STREAMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "coordinator/members/node_channel.h"
#include "strata/v1/membership.pb.h"

namespace strata {

// A core: one thread, the event loop's. Nothing waits.
class ControlStreams {
 public:
  // The node speaks by `channel` from now on; an older stream of it is forgotten as it is.
  void Open(const std::string& node, uint64_t incarnation, std::shared_ptr<NodeChannel> channel);
  // Ends the node's stream, if it has one.
  void Close(const std::string& node);
  void CloseAll();
  // The stream with this channel ended by itself. False when it is not the node's newest.
  bool OnEnded(const std::string& node, const std::shared_ptr<NodeChannel>& channel);

  // Whether the node's stream is of this incarnation.
  bool Speaks(const std::string& node, uint64_t incarnation) const;
  // False when the node has no stream of this incarnation, or takes no more.
  bool Send(const std::string& node, uint64_t incarnation, v1::CoordinatorMessage message);
  // A message of the node claimed what cannot be. True the first time on this stream.
  bool CountNonsense(const std::string& node);

 private:
  struct Stream {
    uint64_t incarnation = 0;
    std::shared_ptr<NodeChannel> channel;
    uint64_t nonsense = 0;  // Messages with claims that cannot be.
  };

  std::map<std::string, Stream> streams_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_MEMBERS_CONTROL_STREAMS_H_
