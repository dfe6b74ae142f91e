#include "coordinator/members/members.h"

#include <utility>

#include "common/app/log.h"
#include "common/status.h"

namespace strata {

absl::Status Members::Join(const v1::NodeInfo& info, std::shared_ptr<NodeChannel> channel,
                           TimePoint now) {
  if (streams_->Speaks(info.name(), info.incarnation()) &&
      cluster_->Leave(info.name(), info.incarnation())) {
    Lose(info.name(), "its control stream was replaced by a new one");
  }
  RETURN_IF_ERROR(cluster_->Join(info, now));
  streams_->Open(info.name(), info.incarnation(), std::move(channel));
  return absl::OkStatus();
}

void Members::OnJoined(const std::string& node) {
  deployments_->OnNodeJoined(node);
  deployments_->LoadWhatWaits(*cluster_);
}

v1::Registered Members::Welcome() const {
  const ClusterOptions& options = cluster_->options();
  v1::Registered registered;
  registered.set_term(term_);
  registered.set_lease_ms(static_cast<uint32_t>(ToMs(options.lease)));
  registered.set_heartbeat_ms(static_cast<uint32_t>(ToMs(options.heartbeat)));
  return registered;
}

void Members::OnStreamEnded(const std::string& node, uint64_t incarnation,
                            const std::shared_ptr<NodeChannel>& channel) {
  if (streams_->OnEnded(node, channel) && cluster_->Leave(node, incarnation)) {
    Lose(node, "its control stream ended");
  }
}

void Members::Expire(TimePoint now) {
  for (const std::string& node : cluster_->Expire(now)) {
    Lose(node, "its lease lapsed: no heartbeat for " +
                   std::to_string(ToMs(cluster_->options().lease)) + " ms");
  }
}

void Members::Lose(const std::string& node, const std::string& why) {
  LogWarn({{"node", node}}, "a node is lost: " + why);
  streams_->Close(node);
  deployments_->OnNodeLost(node);
  on_lost_(node);
}

void Members::OnHeartbeat(const std::string& node, uint64_t incarnation,
                          const v1::Heartbeat& heartbeat, TimePoint now) {
  const bool unfit_now = cluster_->Heartbeat(node, incarnation, heartbeat, now);
  v1::CoordinatorMessage renewed;
  renewed.mutable_lease_renewed()->set_term(term_);
  streams_->Send(node, incarnation, std::move(renewed));
  if (unfit_now) {
    // Its process answers, and computes nothing: what is said to it frees what it holds.
    LogWarn({{"node", node}},
            "a node cannot compute any more, and counts as lost: " + heartbeat.unfit().message());
    deployments_->OnNodeLost(node);
    on_lost_(node);
  }
  if (heartbeat.leaving()) {
    deployments_->OnNodeLeaving(node);
  }
}

bool Members::OnMessage(const std::string& node, uint64_t incarnation,
                        const v1::WorkerMessage& message, TimePoint now) {
  switch (message.kind_case()) {
    case v1::WorkerMessage::kHeartbeat:
      OnHeartbeat(node, incarnation, message.heartbeat(), now);
      return true;
    case v1::WorkerMessage::kLoadProgress:
      if (Deployment* d = deployments_->Find(message.load_progress().deployment())) {
        d->OnLoadProgress(node, message.load_progress());
      }
      return true;
    case v1::WorkerMessage::kFenceAck:
      if (Deployment* d = deployments_->Find(message.fence_ack().deployment())) {
        d->pipeline()->OnFenceAck(node, message.fence_ack());
      }
      return true;
    case v1::WorkerMessage::kLinkFault:
      if (Deployment* d = deployments_->Find(message.link_fault().deployment())) {
        d->pipeline()->OnLinkFault(node, message.link_fault());
      }
      return true;
    case v1::WorkerMessage::kCacheContents:
      cluster_->holders()->OnContents(node, message.cache_contents());
      return true;
    default:
      return false;
  }
}

}  // namespace strata
