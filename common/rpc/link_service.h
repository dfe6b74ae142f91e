// The receiving end of links: the ShardService that worker and coordinator host.
#ifndef STRATA_COMMON_RPC_LINK_SERVICE_H_
#define STRATA_COMMON_RPC_LINK_SERVICE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/frame.h"
#include "common/rpc/peer_role.h"
#include "common/rpc/transport.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// A link that comes in. Its owner is the service; the handler may keep it to end the link.
class InboundLink {
 public:
  virtual ~InboundLink() = default;
  // Ends the link from this end. Any thread; does not wait; a second call does nothing. OnClosed
  // is called with `status`; the sender sees CANCELLED.
  virtual void Break(const absl::Status& status) = 0;
};

// Where an inbound link's frames go. OnStep/OnResult/OnClosed are called in order, one at a time,
// from any thread; OnClosed exactly once, last.
class LinkSink {
 public:
  virtual ~LinkSink() = default;
  // Must not wait: they run on the loop that serves all links. An error ends the link; the
  // sender is told it.
  virtual absl::Status OnStep(StepMessage message);      // Default: refused.
  virtual absl::Status OnResult(ResultMessage message);  // Default: refused.
  // CANCELLED or UNAVAILABLE when the sender went away, what Break was given, or the error that
  // ended the link.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// What hosts a ShardService. Any thread.
class LinkHandler {
 public:
  struct Identity {
    std::string node;  // Empty for the coordinator.
    uint64_t incarnation = 0;
  };

  virtual ~LinkHandler() = default;
  // Who this is now; does not wait. A LinkOpen or Probe for somebody else never reaches OnOpen.
  virtual Identity identity() const = 0;
  // Accepts a link or says why not, on a thread of its own. May wait a little for what is still on
  // its way. `peer` is the sender's address as gRPC writes it.
  virtual absl::StatusOr<std::shared_ptr<LinkSink>> OnOpen(const v1::LinkOpen& open,
                                                           const std::string& peer,
                                                           std::shared_ptr<InboundLink> link) = 0;
};

struct LinkServiceOptions {
  // Links at the same time; one more is refused.
  uint32_t max_links = 256;
  // From a stream's start to its LinkOpen; then it is refused: DEADLINE_EXCEEDED (LINK_NOT_OPENED).
  std::chrono::milliseconds open_timeout{5000};
  // Largest frame accepted.
  size_t max_frame_bytes = kMaxFrameBytes;
  // OnResult links (the coordinator) or OnStep links (a worker): what the frames' headers are.
  bool results = false;
  // Told of those whose certificate opens no link, or not this one. May be empty.
  OnRefusedCall on_refused{};
};

class LinkService : public IoService {
 public:
  // `handler` outlives the service.
  LinkService(LinkHandler* handler, const LinkServiceOptions& options);
  ~LinkService() override;  // Shutdown was called, and the server is gone.
  LinkService(const LinkService&) = delete;
  LinkService& operator=(const LinkService&) = delete;

  // Breaks every link and refuses new ones. Call before RpcServer::Shutdown.
  void Shutdown();

  uint32_t links() const;

  // IoService.
  grpc::Service* NewService() override;
  void Serve(IoLoop* loop) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata

#endif  // STRATA_COMMON_RPC_LINK_SERVICE_H_
