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
  v1::Registered registered = members_.Welcome();
  registered.set_cluster_id(cluster_id_);
  return registered;
}

absl::Status Membership::Admit(const v1::NodeInfo& info, const LinkSpeed& speed,
                               const std::shared_ptr<NodeChannel>& channel) {
  if (to_.deployments->stopping()) {
    return Stopping();
  }
  const TimePoint now = clock_->Now();
  RETURN_IF_ERROR(members_.Join(info, channel, now));
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
  members_.OnJoined(info.name());
  return absl::OkStatus();
}

void Membership::OnLeave(const std::string& node, uint64_t incarnation,
                         std::shared_ptr<NodeChannel> channel) {
  loop_->Post(
      [this, node, incarnation, channel] { members_.OnStreamEnded(node, incarnation, channel); });
}

void Membership::Tick(TimePoint now) {
  members_.Expire(now);
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

void Membership::SetCertificate(const std::string& node, const CertificateTimes& times) {
  if (const auto it = certificates_.find(node); it != certificates_.end()) {
    it->second = times;
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

void Membership::Handle(const std::string& node, uint64_t incarnation,
                        const v1::WorkerMessage& message) {
  const TimePoint now = clock_->Now();
  if (members_.OnMessage(node, incarnation, message, now)) {
    return;
  }
  if (message.has_peer_measured()) {
    to_.measurer->OnMeasured(node, message.peer_measured(), now);
  } else if (message.has_layers_computed()) {
    to_.checks->OnLayersComputed(node, incarnation, message.layers_computed());
  } else if (message.has_layer_kept()) {
    to_.standbys->OnKept(node, incarnation, message.layer_kept(), now);
  }
}

}  // namespace strata
