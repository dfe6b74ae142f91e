// Fences, links and results as the engine sees them: the part of Deployment between Engine and
// StageLinks.
#include <optional>
#include <utility>

#include "common/app/log.h"
#include "common/status.h"
#include "coordinator/deployment/deployment.h"

namespace strata {

void Deployment::SendFence(uint64_t epoch) {
  links_.Begin(epoch);
  if (epoch != plan_.epoch()) {
    plan_.set_epoch(epoch);
    epoch_problem_ = epochs_.Use(epoch);
    if (!epoch_problem_.ok()) {
      return;  // The next tick ends the deployment, outside of the engine.
    }
  }
  links_.Fence(plan_);
}

void Deployment::OnFenceAck(const std::string& node, const v1::FenceAck& ack) {
  if (engine_ != nullptr) {
    links_.OnFenceAck(node, ack, plan_);
  }
}

void Deployment::OnLinked(uint64_t epoch) {
  const DeploymentPhase before = phase_;
  Move(DeploymentEvent::kLinked);
  if (before == DeploymentPhase::kLinking) {
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

void Deployment::OnFault(uint64_t epoch, const absl::Status& why) {
  if (engine_ != nullptr) {
    engine_->OnLinkFault(epoch, why, host_->Now());
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
  OnFault(fault.epoch(), StatusOf(fault.error()));
}

std::optional<uint64_t> Deployment::AcceptResults(const v1::LinkOpen& open) {
  return engine_ != nullptr ? links_.AcceptResults(open, plan_) : std::nullopt;
}

void Deployment::OnResultsClosed(uint64_t link, const absl::Status& status) {
  links_.OnResultsClosed(link, status);
}

void Deployment::OnResult(uint64_t link, ResultMessage result) {
  if (engine_ != nullptr && links_.IsNewestResults(link)) {
    engine_->OnResult(std::move(result), host_->Now());
  }
}

}  // namespace strata
