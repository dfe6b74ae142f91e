#include "coordinator/deployment/stage_links.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/app/log.h"
#include "common/plan.h"
#include "common/status.h"

namespace strata {

void StageLinks::SkipTo(uint64_t epoch) { epoch_ = std::max(epoch_, epoch); }

void StageLinks::Drop() {
  first_.reset();
  unfenced_.clear();
}

void StageLinks::Begin(uint64_t epoch) {
  epoch_ = epoch;
  first_.reset();
  if (IsAhead(epoch)) {
    first_ = std::move(ahead_->first);
    first_epoch_ = epoch;
    results_ = ahead_->results;
    results_epoch_ = epoch;
  }
  ahead_.reset();
}

void StageLinks::Fence(const v1::Plan& plan, std::vector<v1::Fence> fences) {
  unfenced_.clear();
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    unfenced_.insert(FirstRank(stage).node());
  }
  // From the last one on, so that a link that a stage opens finds the next one fenced.
  for (size_t i = fences.size(); i-- > 0;) {
    SendFence(epoch_, FirstRank(OnlyPipeline(plan).stages(static_cast<int>(i))),
              std::move(fences[i]));
  }
  LogInfo({{"model", model_}, {"deployment", deployment_}, {"epoch", epoch_}}, "fence");
}

void StageLinks::OpenAhead(uint64_t epoch, const v1::Plan& plan,
                           std::vector<std::vector<v1::Fence>> fences) {
  ahead_ = Ahead{.epoch = epoch, .plan = plan};
  for (size_t i = fences.size(); i-- > 0;) {
    const v1::PlanRank& rank = FirstRank(OnlyPipeline(plan).stages(static_cast<int>(i)));
    ahead_->unlinked.insert(rank.node());
    for (v1::Fence& fence : fences[i]) {
      if (fence.has_kv_from()) {
        ahead_->uncarried.insert(rank.node());
      }
      SendFence(epoch, rank, std::move(fence));
    }
  }
  LogInfo({{"model", model_}, {"deployment", deployment_}, {"epoch", epoch}},
          "links are opened ahead");
}

void StageLinks::SendFence(uint64_t epoch, const v1::PlanRank& rank, v1::Fence fence) {
  fence.set_epoch(epoch);
  if (fence.has_next()) {
    fence.mutable_next()->set_address(host_->AddressOf(fence.next().node()));
  }
  if (fence.has_kv_from()) {
    v1::NextHop* const from = fence.mutable_kv_from()->mutable_worker();
    from->set_address(host_->AddressOf(from->node()));
  }
  v1::CoordinatorMessage message;
  *message.mutable_fence() = std::move(fence);
  host_->SendToNode(rank.node(), rank.incarnation(), std::move(message));
}

std::vector<std::string> StageLinks::Unfenced(const v1::Plan& plan) const {
  if (unfenced_.empty() && first_ == nullptr) {
    return {FirstRank(OnlyPipeline(plan).stages(0)).node()};  // Is being dialled.
  }
  std::vector<std::string> nodes;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    if (unfenced_.contains(FirstRank(stage).node())) {
      nodes.push_back(FirstRank(stage).node());
    }
  }
  return nodes;
}

std::vector<std::string> StageLinks::UnlinkedAhead() const {
  std::vector<std::string> nodes;
  if (!ahead_.has_value()) {
    return nodes;
  }
  for (const v1::PlanStage& stage : OnlyPipeline(ahead_->plan).stages()) {
    if (ahead_->unlinked.contains(FirstRank(stage).node())) {
      nodes.push_back(FirstRank(stage).node());
    }
  }
  return nodes;
}

void StageLinks::OnAheadAck(const std::string& node, const v1::FenceAck& ack) {
  if (!IsAhead(ack.epoch())) {
    return;
  }
  if (ack.carried()) {
    ahead_->uncarried.erase(node);
  }
  if (ack.has_error()) {
    events_.ahead(Annotate(StatusOf(ack.error()), "node '" + node + "' cannot link its stage"));
  } else if (ahead_->unlinked.erase(node) > 0 && ahead_->unlinked.empty()) {
    OpenFirst(ack.epoch(), ahead_->plan);
  }
}

void StageLinks::OnFenceAck(const std::string& node, const v1::FenceAck& ack,
                            const v1::Plan& plan) {
  if (ack.ahead()) {
    OnAheadAck(node, ack);
    return;
  }
  if (ack.has_error()) {
    // Also of an older epoch: why that one could not be linked.
    last_fault_ = StatusOf(ack.error());
  }
  if (ack.epoch() != epoch_) {
    return;
  }
  if (ack.has_error()) {
    events_.fault(ack.epoch(), StatusOf(ack.error()));
    return;
  }
  if (unfenced_.erase(node) == 0 || !unfenced_.empty()) {
    return;
  }
  if (first_ != nullptr) {
    events_.linked(ack.epoch());
  } else {
    OpenFirst(ack.epoch(), plan);
  }
}

void StageLinks::OpenFirst(uint64_t epoch, const v1::Plan& plan) {
  const v1::PlanPipeline& pipeline = OnlyPipeline(plan);
  const v1::PlanRank& rank = FirstRank(pipeline.stages(0));
  StepLinkRequest request;
  request.address = host_->AddressOf(rank.node());
  request.open.set_from_incarnation(host_->coordinator_incarnation());
  request.open.set_to_node(rank.node());
  request.open.set_to_incarnation(rank.incarnation());
  request.open.set_deployment(deployment_);
  request.open.set_epoch(epoch);
  request.open.set_to_stage(0);
  request.open_timeout = std::chrono::duration_cast<milliseconds>(open_timeout_);
  request.max_queued_frames = static_cast<uint32_t>(pipeline.stages_size()) + 2;
  host_->OpenLink(
      std::move(request),
      [this, epoch, alive = alive_](absl::StatusOr<std::unique_ptr<StepLink>> link) {
        if (*alive) {
          OnFirst(epoch, std::move(link));
        }
      },
      [this, epoch, alive = alive_](const absl::Status& status) {
        if (*alive) {
          OnFirstBroken(epoch, status);
        }
      });
}

void StageLinks::OnFirstBroken(uint64_t epoch, const absl::Status& status) {
  if (IsAhead(epoch)) {
    events_.ahead(status);
  } else {
    events_.fault(epoch, status);
  }
}

void StageLinks::OnFirstAhead(absl::StatusOr<std::unique_ptr<StepLink>> link) {
  if (link.ok()) {
    ahead_->first = *std::move(link);
  }
  events_.ahead(link.status());
}

void StageLinks::OnFirst(uint64_t epoch, absl::StatusOr<std::unique_ptr<StepLink>> link) {
  if (IsAhead(epoch)) {
    OnFirstAhead(std::move(link));
    return;
  }
  if (!events_.wanted() || epoch != epoch_) {
    return;
  }
  if (!link.ok()) {
    last_fault_ = link.status();
    events_.fault(epoch, link.status());
    return;
  }
  first_ = *std::move(link);
  first_epoch_ = epoch;
  events_.linked(epoch);
}

void StageLinks::Send(StepMessage step) {
  if (first_ != nullptr && first_epoch_ == step.header.epoch()) {
    first_->Send(std::move(step));
  }
}

std::optional<uint64_t> StageLinks::AcceptResults(const v1::LinkOpen& open, const v1::Plan& plan) {
  const bool ahead = IsAhead(open.epoch());
  const v1::PlanPipeline& pipeline = OnlyPipeline(ahead ? ahead_->plan : plan);
  const int last = pipeline.stages_size() - 1;
  const v1::PlanRank& rank = FirstRank(pipeline.stages(last));
  if ((open.epoch() != epoch_ && !ahead) || open.to_stage() != static_cast<uint32_t>(last + 1) ||
      open.from_node() != rank.node() || open.from_incarnation() != rank.incarnation()) {
    return std::nullopt;
  }
  if (ahead) {
    return ahead_->results = ++results_taken_;
  }
  results_epoch_ = open.epoch();
  return results_ = ++results_taken_;
}

void StageLinks::OnResultsClosed(uint64_t link, const absl::Status& status) {
  if (ahead_.has_value() && link == ahead_->results) {
    ahead_->results = 0;  // The last stage opens another one with the fence.
  } else if (link == results_) {
    events_.fault(results_epoch_, status);
  }
}

}  // namespace strata
