#include "coordinator/service/process/membership.h"

#include <utility>

#include "common/app/log.h"
#include "common/rpc/link.h"
#include "common/status.h"
#include "coordinator/service/loop/errors.h"
#include "coordinator/service/nodes/worker_claims.h"

namespace strata {
namespace {

// How often nodes that left are looked at.
constexpr nanoseconds kForgetEvery = std::chrono::seconds(1);

}  // namespace

absl::Status Membership::MayJoin(const v1::NodeInfo& info) {
  return loop_->Call([&] { return to_.cluster->MayJoin(info); }).value_or(Stopping());
}

absl::StatusOr<v1::Registered> Membership::Join(const v1::NodeInfo& info, const LinkSpeed& speed,
                                                std::shared_ptr<NodeChannel> channel) {
  const auto status = loop_->Call([&] { return Admit(info, speed, channel); });
  RETURN_IF_ERROR(status.value_or(Stopping()));
  const ClusterOptions& options = to_.cluster->options();
  v1::Registered registered;
  registered.set_term(term_);
  registered.set_lease_ms(static_cast<uint32_t>(ToMs(options.lease)));
  registered.set_heartbeat_ms(static_cast<uint32_t>(ToMs(options.heartbeat)));
  registered.set_cluster_id(cluster_id_);
  return registered;
}

absl::Status Membership::Admit(const v1::NodeInfo& info, const LinkSpeed& speed,
                               const std::shared_ptr<NodeChannel>& channel) {
  if (to_.deployments->stopping()) {
    return Stopping();
  }
  // The same incarnation on a new stream: the old one is as good as gone.
  if (to_.streams->Speaks(info.name(), info.incarnation()) &&
      to_.cluster->Leave(info.name(), info.incarnation())) {
    Lose(info.name(), "its control stream was replaced by a new one");
  }
  const TimePoint now = clock_->Now();
  RETURN_IF_ERROR(to_.cluster->Join(info, now));
  to_.streams->Open(info.name(), info.incarnation(), channel);
  to_.cluster->SetLink(info.name(), "", {speed.latency_ms, speed.bytes_per_s, {}, 0}, now);
  certificates_[info.name()] = speed.certificate;
  to_.records->SaveNode(info.name());
  LogInfo({{"node", info.name()},
           {"address", info.address()},
           {"isa", info.isa()},
           {"threads", info.threads()},
           {"numerics", info.numerics()},
           {"incarnation", info.incarnation()}},
          "a node joined");
  to_.measurer->OnJoined(info.name(), now);
  to_.deployments->OnNodeJoined(info.name());
  to_.deployments->LoadWhatWaits(*to_.cluster);
  return absl::OkStatus();
}

void Membership::OnLeave(const std::string& node, uint64_t incarnation,
                         std::shared_ptr<NodeChannel> channel) {
  loop_->Post([this, node, incarnation, channel] {
    if (to_.streams->OnEnded(node, channel) && to_.cluster->Leave(node, incarnation)) {
      Lose(node, "its control stream ended");
    }
  });
}

void Membership::Lose(const std::string& node, const std::string& why) {
  LogWarn({{"node", node}}, "a node is lost: " + why);
  to_.streams->Close(node);
  to_.deployments->OnNodeLost(node);
  to_.checks->OnNodeLost(node);
}

void Membership::Tick(TimePoint now) {
  for (const std::string& node : to_.cluster->Expire(now)) {
    Lose(node, "its lease lapsed: no heartbeat for " +
                   std::to_string(ToMs(to_.cluster->options().lease)) + " ms");
  }
  if (now - last_forgot_ > kForgetEvery) {
    last_forgot_ = now;
    ForgetLongGone(now);
  }
}

void Membership::ForgetLongGone(TimePoint now) {
  for (const std::string& name : to_.cluster->Forgettable(now)) {
    if (!to_.deployments->ModelOn(name).empty() || !to_.cluster->Remove(name).ok()) {
      continue;
    }
    LogInfo({{"node", name}}, "a node that left is forgotten");
    to_.records->ForgetNode(name);
  }
}

std::optional<CertificateTimes> Membership::CertificateOf(const std::string& node) const {
  const auto it = certificates_.find(node);
  return it == certificates_.end() ? std::nullopt : std::optional(it->second);
}

void Membership::OnMessage(const std::string& node, uint64_t incarnation, v1::WorkerMessage message,
                           std::function<void()> done) {
  // Every worker has one message on the loop at most.
  const absl::Status claims = CleanMessage(&message);
  const bool posted =
      loop_->Post([this, node, incarnation, message = std::move(message), claims, done] {
        if (to_.streams->Speaks(node, incarnation)) {
          if (!claims.ok() && to_.streams->CountNonsense(node)) {
            LogWarn({{"node", node}}, "the node says what cannot be: " + Describe(claims));
          }
          Handle(node, incarnation, message);
        }
        done();
      });
  if (!posted) {
    done();  // The stream is about to end, which a read tells.
  }
}

void Membership::OnHeartbeat(const std::string& node, uint64_t incarnation,
                             const v1::Heartbeat& heartbeat) {
  to_.cluster->Heartbeat(node, incarnation, heartbeat, clock_->Now());
  v1::CoordinatorMessage renewed;
  renewed.mutable_lease_renewed()->set_term(term_);
  to_.streams->Send(node, incarnation, std::move(renewed));
  if (heartbeat.leaving()) {
    to_.deployments->OnNodeLeaving(node);
  }
}

void Membership::Handle(const std::string& node, uint64_t incarnation,
                        const v1::WorkerMessage& message) {
  switch (message.kind_case()) {
    case v1::WorkerMessage::kHeartbeat:
      OnHeartbeat(node, incarnation, message.heartbeat());
      break;
    case v1::WorkerMessage::kLoadProgress:
      if (Deployment* d = to_.deployments->Find(message.load_progress().deployment())) {
        d->OnLoadProgress(node, message.load_progress());
      }
      break;
    case v1::WorkerMessage::kFenceAck:
      if (Deployment* d = to_.deployments->Find(message.fence_ack().deployment())) {
        d->OnFenceAck(node, message.fence_ack());
      }
      break;
    case v1::WorkerMessage::kLinkFault:
      if (Deployment* d = to_.deployments->Find(message.link_fault().deployment())) {
        d->OnLinkFault(node, message.link_fault());
      }
      break;
    case v1::WorkerMessage::kPeerMeasured:
      to_.measurer->OnMeasured(node, message.peer_measured(), clock_->Now());
      break;
    case v1::WorkerMessage::kLayersComputed:
      to_.checks->OnLayersComputed(node, incarnation, message.layers_computed());
      break;
    default:
      break;
  }
}

}  // namespace strata
