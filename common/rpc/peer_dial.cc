#include "common/rpc/peer_dial.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <memory>

#include "absl/status/statusor.h"
#include "common/platform/diagnosis.h"
#include "common/rpc/address.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "strata/v1/shard.grpc.pb.h"

namespace strata {
namespace {

using std::chrono::steady_clock;

// Small messages, one at a time: a segment each, so that nothing but the way itself loses any.
constexpr int kPings = 100;
constexpr size_t kPingBytes = 1000;
// What is sent to see how fast the way is: ever more, until it is faster than anybody asks, and the
// longest one several times, since others may have the processors meanwhile.
constexpr size_t kFirstBulkBytes = 64 << 10;
constexpr size_t kMostBulkBytes = 1 << 20;
constexpr int kMostBulks = 18;
constexpr double kFastEnough = 250e6;

class Dialled {
 public:
  Dialled(const Transport& transport, const PeerToDial& peer)
      : channel_(transport.MakeChannel(peer.address)), stub_(v1::ShardService::NewStub(channel_)) {
    request_.set_expected_node(peer.node);
    request_.set_expected_incarnation(peer.incarnation);
  }

  // Seconds of a round trip with so many bytes on the way there.
  absl::StatusOr<double> Send(size_t bytes, steady_clock::time_point until) {
    request_.mutable_padding()->assign(bytes, '\x5a');
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + (until - steady_clock::now()));
    v1::ProbeResponse response;
    const auto start = steady_clock::now();
    RETURN_IF_ERROR(FromGrpc(stub_->Probe(&context, request_, &response)));
    node_ = response.node();
    return std::chrono::duration<double>(steady_clock::now() - start).count();
  }

  const std::string& node() const { return node_; }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::ShardService::Stub> stub_;
  v1::ProbeRequest request_;
  std::string node_;
};

// OK where it answers as who it should be.
absl::Status Meet(Dialled* dialled, const PeerToDial& peer, steady_clock::time_point until) {
  const auto met = dialled->Send(0, until);
  if (!met.ok()) {
    return met.status();
  }
  if (dialled->node() != peer.node) {
    return Error(absl::StatusCode::kFailedPrecondition, "WRONG_NODE",
                 "this is " + (dialled->node().empty() ? "the coordinator" : dialled->node()))
        .Hint("check --advertise: the address leads to another process");
  }
  return absl::OkStatus();
}

}  // namespace

v1::LinkFacts DialPeer(const Transport& transport, const std::string& from, const PeerToDial& peer,
                       std::chrono::milliseconds timeout, const std::function<bool()>& cancelled) {
  v1::LinkFacts facts;
  facts.set_from(from);
  facts.set_to(peer.node);
  facts.set_address(peer.address);
  const auto address = ParseHostPort(peer.address);
  absl::Status status = address.status();
  if (status.ok()) {
    status = transport.Probe(peer.address, timeout);
    if (ReasonOf(status) == "SAYS_NOTHING") {
      // Or what it says is lost on its way, and sent again after a second or two.
      status = transport.Probe(peer.address, timeout);
    }
  }
  Dialled dialled(transport, peer);
  if (status.ok()) {
    status = Meet(&dialled, peer, steady_clock::now() + 2 * timeout);
  }
  if (!status.ok()) {
    *facts.mutable_error() = DetailOf(status);
    return facts;
  }
  const auto gone = [&cancelled] { return cancelled && cancelled(); };
  const TcpSent before = TcpSentTo(address->host, address->port);
  const auto pings_end = steady_clock::now() + timeout * 2 / 3;
  double least_s = 0;
  for (int i = 0; i < kPings && steady_clock::now() < pings_end && !gone(); ++i) {
    const auto took = dialled.Send(kPingBytes, pings_end);
    if (!took.ok()) {
      break;
    }
    least_s = least_s == 0 ? *took : std::min(least_s, *took);
  }
  const TcpSent after = TcpSentTo(address->host, address->port);
  facts.set_round_trip_ms(least_s * 1000);
  if (after.segments > before.segments && after.again >= before.again) {
    facts.set_segments(after.segments - before.segments);
    facts.set_segments_again(after.again - before.again);
  }
  const auto bulk_end = steady_clock::now() + timeout;
  double most = 0;
  size_t bytes = kFirstBulkBytes;
  for (int i = 0; i < kMostBulks && most < kFastEnough; ++i) {
    if (gone() || steady_clock::now() >= bulk_end) {
      break;
    }
    const auto took = dialled.Send(bytes, bulk_end);
    if (!took.ok()) {
      break;
    }
    constexpr double kLeastS = 1e-6;
    most = std::max(most, static_cast<double>(bytes) / std::max(*took - least_s, kLeastS));
    bytes = std::min(bytes * 4, kMostBulkBytes);
  }
  facts.set_bytes_per_s(most);
  return facts;
}

}  // namespace strata
