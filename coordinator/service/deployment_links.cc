// Fences, links and what comes over them: the part of Deployment that ties its stages together.
#include <chrono>
#include <utility>

#include "common/app/log.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/service/deployment.h"

namespace strata {

void Deployment::SendFence(uint64_t epoch) {
  fence_epoch_ = epoch;
  first_link_.reset();
  if (epoch != plan_.epoch()) {
    plan_.set_epoch(epoch);
    epoch_problem_ = UseEpoch(epoch);
    if (!epoch_problem_.ok()) {
      return;  // The next tick ends the deployment, outside of the engine.
    }
  }
  unfenced_.clear();
  for (int i = 0; i < OnlyPipeline(plan_).stages_size(); ++i) {
    unfenced_.insert(RankOf(i).node());
    v1::CoordinatorMessage message;
    message.mutable_fence()->set_deployment(id_);
    message.mutable_fence()->set_epoch(epoch);
    host_->SendToNode(RankOf(i).node(), RankOf(i).incarnation(), std::move(message));
  }
  LogInfo({{"model", model_->name}, {"deployment", id_}, {"epoch", epoch}}, "fence");
}

void Deployment::OnFenceAck(const std::string& node, const v1::FenceAck& ack) {
  if (engine_ == nullptr) {
    return;
  }
  if (ack.has_error()) {
    // Also of an older epoch: why that one could not be linked.
    last_fault_ = StatusOf(ack.error());
  }
  if (ack.epoch() != fence_epoch_) {
    return;
  }
  if (ack.has_error()) {
    engine_->OnLinkFault(ack.epoch(), StatusOf(ack.error()), host_->Now());
    return;
  }
  if (unfenced_.erase(node) > 0 && unfenced_.empty()) {
    OpenFirstLink(ack.epoch());
  }
}

std::vector<std::string> Deployment::UnfencedNodes() const {
  if (unfenced_.empty() && first_link_ == nullptr) {
    return {RankOf(0).node()};  // Is being dialled.
  }
  return {unfenced_.begin(), unfenced_.end()};
}

void Deployment::OpenFirstLink(uint64_t epoch) {
  const v1::PlanRank& rank = RankOf(0);
  StepLinkRequest request;
  request.address = host_->AddressOf(rank.node());
  request.open.set_from_incarnation(host_->coordinator_incarnation());
  request.open.set_to_node(rank.node());
  request.open.set_to_incarnation(rank.incarnation());
  request.open.set_deployment(id_);
  request.open.set_epoch(epoch);
  request.open.set_to_stage(0);
  request.open_timeout = std::chrono::duration_cast<milliseconds>(options_.step_timeout / 2);
  request.max_queued_frames = static_cast<uint32_t>(OnlyPipeline(plan_).stages_size()) + 2;
  host_->OpenLink(
      std::move(request),
      [this, epoch, alive = alive_](absl::StatusOr<std::unique_ptr<StepLink>> link) {
        if (*alive) {
          OnFirstLink(epoch, std::move(link));
        }
      },
      [this, epoch, alive = alive_](const absl::Status& status) {
        if (*alive && engine_ != nullptr) {
          engine_->OnLinkFault(epoch, status, host_->Now());
        }
      });
}

void Deployment::OnFirstLink(uint64_t epoch, absl::StatusOr<std::unique_ptr<StepLink>> link) {
  if (engine_ == nullptr || awaiting_ || epoch != fence_epoch_) {
    return;
  }
  if (!link.ok()) {
    last_fault_ = link.status();
    engine_->OnLinkFault(epoch, link.status(), host_->Now());
    return;
  }
  first_link_ = *std::move(link);
  first_link_epoch_ = epoch;
  if (state_ == DeploymentState::kLoading) {
    state_ = DeploymentState::kReady;
    retry_.Forget();
    host_->OnPlacement(id_, plan_, true, true);
    const EngineSnapshot snapshot = engine_->Snapshot(host_->Now());
    LogInfo({{"model", model_->name},
             {"deployment", id_},
             {"epoch", epoch},
             {"kv_tokens", snapshot.kv_tokens},
             {"limiting_node", snapshot.limiting_node}},
            "the model is ready");
  }
  engine_->OnFenced(epoch, host_->Now());
}

void Deployment::SendStep(StepMessage step) {
  if (first_link_ != nullptr && first_link_epoch_ == step.header.epoch()) {
    first_link_->Send(std::move(step));
  }
}

void Deployment::OnLinkFault(const std::string& node, const v1::LinkFault& fault) {
  LogWarn({{"model", model_->name},
           {"deployment", id_},
           {"epoch", fault.epoch()},
           {"step", fault.step()},
           {"stage", fault.stage()},
           {"node", node}},
          "a node reports a fault: " + fault.error().message());
  if (engine_ != nullptr) {
    engine_->OnLinkFault(fault.epoch(), StatusOf(fault.error()), host_->Now());
  }
}

std::optional<uint64_t> Deployment::AcceptResults(const v1::LinkOpen& open) {
  const int last = OnlyPipeline(plan_).stages_size() - 1;
  if (engine_ == nullptr || open.epoch() != fence_epoch_ ||
      open.to_stage() != static_cast<uint32_t>(last + 1) ||
      open.from_node() != RankOf(last).node() ||
      open.from_incarnation() != RankOf(last).incarnation()) {
    return std::nullopt;
  }
  results_link_epoch_ = open.epoch();
  return ++results_link_;
}

void Deployment::OnResultsClosed(uint64_t link, const absl::Status& status) {
  if (engine_ != nullptr && link == results_link_) {
    engine_->OnLinkFault(results_link_epoch_, status, host_->Now());
  }
}

void Deployment::OnResult(uint64_t link, ResultMessage result) {
  if (engine_ != nullptr && link == results_link_) {
    engine_->OnResult(std::move(result), host_->Now());
  }
}

}  // namespace strata
