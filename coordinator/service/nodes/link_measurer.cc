#include "coordinator/service/nodes/link_measurer.h"

#include <optional>
#include <utility>

#include "common/app/log.h"
#include "common/plan.h"
#include "common/status.h"

namespace strata {
namespace {

// How often links are measured because a pipeline over them had faults.
constexpr nanoseconds kDoubtEvery = std::chrono::seconds(1);

}  // namespace

void LinkMeasurer::OnJoined(const std::string& node, TimePoint now) {
  const NodeRecord* joined = cluster_->Find(node);
  for (const auto& [name, other] : cluster_->nodes()) {
    if (other.alive && name != node) {
      Ask(*joined, other, now);
      Ask(other, *joined, now);
    }
  }
}

void LinkMeasurer::OnMeasured(const std::string& node, const v1::PeerMeasured& measured,
                              TimePoint now) {
  if (cluster_->Find(measured.node()) == nullptr) {
    return;  // It left meanwhile, or never was.
  }
  cluster_->SetLink(
      node, measured.node(),
      {measured.latency_ms(), measured.bytes_per_s(), measured.error(), measured.incarnation()},
      now);
  if (measured.has_error()) {
    LogWarn({{"node", node}, {"peer", measured.node()}},
            "the node cannot reach another: " + measured.error().message());
  }
}

void LinkMeasurer::OnMeasuredFromHere(const v1::NodeInfo& info,
                                      const absl::StatusOr<LinkMeasure>& measured, TimePoint now) {
  const NodeRecord* record = cluster_->Find(info.name());
  if (record == nullptr || record->info.incarnation() != info.incarnation()) {
    return;
  }
  LinkMeasure measure;
  if (measured.ok()) {
    measure = *measured;
  } else {
    measure.error = DetailOf(measured.status());
    LogWarn({{"node", info.name()}},
            "the coordinator cannot reach the node: " + measure.error.message());
  }
  cluster_->SetLink(info.name(), "", measure, now);
}

void LinkMeasurer::Tick(TimePoint now) {
  if (now - last_broken_ > again_) {
    last_broken_ = now;
    MeasureBroken(now);
  }
  if (now - last_doubtful_ > kDoubtEvery) {
    last_doubtful_ = now;
    MeasureDoubtful(now);
  }
}

void LinkMeasurer::Ask(const NodeRecord& from, const NodeRecord& to, TimePoint now) {
  cluster_->BeginMeasure(from.info.name(), to.info.name(), now);
  v1::CoordinatorMessage message;
  message.mutable_measure_peer()->set_node(to.info.name());
  message.mutable_measure_peer()->set_incarnation(to.info.incarnation());
  message.mutable_measure_peer()->set_address(to.info.address());
  streams_->Send(from.info.name(), from.info.incarnation(), std::move(message));
}

// A firewall may have been opened since, or a worker have been deaf.
void LinkMeasurer::MeasureBroken(TimePoint now) {
  for (const auto& [name, node] : cluster_->nodes()) {
    const auto owed = cluster_->OwedMeasures(node);
    if (owed.has_value() && now - owed->since >= cluster_->options().measure_timeout) {
      for (const std::string& peer : owed->peers) {
        Ask(node, *cluster_->Find(peer), now);
      }
    }
    for (const auto& [peer, link] : node.links) {
      const NodeRecord* other = cluster_->Find(peer);
      if (!node.alive || link.ok()) {
        continue;
      }
      if (peer.empty()) {
        from_here_(node.info);
      } else if (other != nullptr && other->alive) {
        Ask(node, *other, now);
      }
    }
  }
}

// A new epoch may be due to a link that broke: which one is measured, so that `status` can say. One
// that began with a planned move is not, and its first steps have the links to themselves.
void LinkMeasurer::MeasureDoubtful(TimePoint now) {
  std::erase_if(epochs_seen_,
                [&](const auto& seen) { return deployments_->Find(seen.first) == nullptr; });
  for (const auto& [id, deployment] : deployments_->all()) {
    uint64_t& seen = epochs_seen_[id];
    if (deployment->state() != DeploymentState::kReady || seen == deployment->plan().epoch()) {
      continue;
    }
    const bool doubtful =
        std::exchange(seen, deployment->plan().epoch()) != 0 && seen != deployment->moved_in();
    const NodeRecord* from = nullptr;  // The coordinator.
    for (const v1::PlanStage& stage : OnlyPipeline(deployment->plan()).stages()) {
      const NodeRecord* to = cluster_->Find(FirstRank(stage).node());
      if (!doubtful || to == nullptr || !to->alive) {
        break;
      }
      if (from == nullptr) {
        from_here_(to->info);
      } else {
        Ask(*from, *to, now);
      }
      for (const v1::PlanRank& rank : stage.ranks()) {
        const NodeRecord* follower = cluster_->Find(rank.node());
        if (follower != to && follower != nullptr && follower->alive) {
          Ask(*to, *follower, now);
        }
      }
      from = to;
    }
  }
}

}  // namespace strata
