// The sending end of a link: one direction of frames to one stage of one deployment and epoch,
// over one long-lived gRPC stream. The receiving end is link_service.h.
#ifndef STRATA_COMMON_RPC_LINK_H_
#define STRATA_COMMON_RPC_LINK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/frame.h"
#include "common/rpc/transport.h"
#include "strata/v1/shard.pb.h"

namespace strata {

class IoLoop;

// "worker-a", or "the coordinator" for the empty name.
std::string LinkEndName(const std::string& node);

struct LinkOptions {
  std::string address;  // host:port of the receiver.
  v1::LinkOpen open;    // Who speaks to whom, and about what.
  std::chrono::milliseconds open_timeout{5000};
  // Frames that may wait to be written: the steps in flight. One more breaks the link.
  uint32_t max_queued_frames = 8;
};

// Any thread may call anything, but for Open on the loop's.
class LinkSender {
 public:
  // Called at most once, on the loop's thread, when it broke for any reason but Close; must not
  // wait. The status names both ends, and keeps reason and details of what the receiver said.
  using OnBroken = std::function<void(const absl::Status& status)>;

  // Dials and waits until the receiver has accepted, `open_timeout` at most. `loop` outlives the
  // link, and what it calls. UNAVAILABLE
  // (LINK_NOT_OPENED) when nobody answers there, naming both ends; the receiver's own error when
  // it refused.
  static absl::StatusOr<std::unique_ptr<LinkSender>> Open(IoLoop* loop, const Transport& transport,
                                                          LinkOptions options, OnBroken on_broken);
  ~LinkSender();  // Closes.
  LinkSender(const LinkSender&) = delete;
  LinkSender& operator=(const LinkSender&) = delete;

  // Hands a frame over; never waits for the network. Frames are written in this order, whole. The
  // status that broke the link, once it is broken; RESOURCE_EXHAUSTED (LINK_QUEUE_FULL), which
  // breaks it, when max_queued_frames wait already.
  absl::Status Send(StepMessage message);
  absl::Status Send(ResultMessage message);

  // Ends the link at once: what still waits is dropped. No callback begins after it returned;
  // waits for one that runs, but on the loop's thread itself, where none does.
  void Close();

 private:
  class Impl;
  explicit LinkSender(std::shared_ptr<Impl> impl);
  const std::shared_ptr<Impl> impl_;
};

// What a link can do, for the planner.
struct LinkSpeed {
  double latency_ms = 0;   // One way: half of the median round trip of empty probes.
  double bytes_per_s = 0;  // From probes of up to 1 MiB, the latency taken off.
  // The peer's, with TLS; else with an empty subject and zeros.
  CertificateTimes certificate{};
};

// Probes a peer for about half a second, `timeout` at most. Fails as the peer does when it is not
// `node` in this `incarnation` (WRONG_NODE), and UNAVAILABLE (PEER_UNREACHABLE) naming the address
// when nobody answers.
absl::StatusOr<LinkSpeed> MeasureLink(const Transport& transport, const std::string& address,
                                      const std::string& node, uint64_t incarnation,
                                      std::chrono::milliseconds timeout);

}  // namespace strata

#endif  // STRATA_COMMON_RPC_LINK_H_
