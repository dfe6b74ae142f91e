#include "coordinator/deployment/deployments.h"

#include <algorithm>
#include <utility>

#include "common/plan.h"

namespace strata {

Deployment* Deployments::Find(uint64_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second.get();
}

Deployment* Deployments::OfModel(const std::string& model) const {
  for (const auto& [id, deployment] : by_id_) {
    if (deployment->model()->name == model) {
      return deployment.get();
    }
  }
  return nullptr;
}

Deployment* Deployments::WithRequest(const std::string& key) const {
  for (const auto& [id, deployment] : by_id_) {
    if (deployment->engine() != nullptr && deployment->engine()->IsLive(key)) {
      return deployment.get();
    }
  }
  return nullptr;
}

std::vector<uint64_t> Deployments::On(const std::string& node) const {
  std::vector<uint64_t> ids;
  for (const auto& [id, deployment] : by_id_) {
    if (deployment->Uses(node)) ids.push_back(id);
  }
  return ids;
}

std::string Deployments::ModelOn(const std::string& node) const {
  for (const auto& [id, deployment] : by_id_) {
    if (deployment->Uses(node)) {
      return deployment->model()->name;
    }
  }
  return "";
}

void Deployments::Add(std::unique_ptr<Deployment> deployment) {
  const uint64_t id = deployment->id();
  by_id_[id] = std::move(deployment);
}

void Deployments::Unload(uint64_t id, const absl::Status& why) {
  if (const auto it = by_id_.find(id); it != by_id_.end()) {
    it->second->Unload(why);
    by_id_.erase(it);
  }
}

void Deployments::UnloadAll(const absl::Status& why) {
  for (auto& [id, deployment] : by_id_) {
    deployment->Unload(why);
  }
  by_id_.clear();
}

std::vector<uint64_t> Deployments::WantPlacement(TimePoint now) const {
  std::vector<uint64_t> ids;
  for (const auto& [id, deployment] : by_id_) {
    if (deployment->WantsPlacement(now)) ids.push_back(id);
  }
  return ids;
}

std::vector<uint64_t> Deployments::WantBetter(TimePoint now) const {
  std::vector<uint64_t> ids;
  for (const auto& [id, deployment] : by_id_) {
    if (deployment->WantsBetter(now)) ids.push_back(id);
  }
  return ids;
}

void Deployments::LoadWhatWaits(const ClusterState& cluster) {
  for (auto& [id, deployment] : by_id_) {
    if (deployment->state() != DeploymentState::kWaiting) {
      continue;
    }
    std::map<std::string, uint64_t> incarnations;
    std::vector<std::string> missing;
    for (const v1::PlanStage& stage : OnlyPipeline(deployment->plan()).stages()) {
      for (const v1::PlanRank& rank : stage.ranks()) {
        const NodeRecord* node = cluster.Find(rank.node());
        if (node == nullptr || !node->alive || node->unfit() || node->leaving()) {
          missing.push_back(rank.node());
        }
        if (node != nullptr) {
          incarnations[rank.node()] = node->info.incarnation();
        }
      }
    }
    if (missing.empty()) {
      deployment->Load(incarnations);
    } else {
      deployment->SetWaitingFor(missing);
    }
  }
}

void Deployments::OnNodeLost(const std::string& node) {
  for (auto& [id, deployment] : by_id_) {
    deployment->OnNodeLost(node);
  }
}

void Deployments::OnNodeLeaving(const std::string& node) {
  for (auto& [id, deployment] : by_id_) {
    deployment->OnNodeLeaving(node);
  }
}

void Deployments::OnNodeJoined(const std::string& node) {
  for (auto& [id, deployment] : by_id_) {
    deployment->OnNodeJoined(node);
  }
}

void Deployments::OnNodeDraining(const std::string& node, bool draining) {
  for (auto& [id, deployment] : by_id_) {
    deployment->OnNodeDraining(node, draining);
  }
}

bool Deployments::Tick(TimePoint now, bool reading) {
  bool again = false;
  for (auto& [id, deployment] : by_id_) {
    if (reading) deployment->ExcuseSilence();
    deployment->Tick(now);
    again |= deployment->BeginRetry(now);
  }
  return again;
}

void Deployments::ExcusePause(TimePoint now) {
  for (auto& [id, deployment] : by_id_) {
    if (deployment->engine() != nullptr) deployment->engine()->ExcusePause(now);
  }
}

std::optional<TimePoint> Deployments::NextWake() const {
  std::optional<TimePoint> next;
  for (const auto& [id, deployment] : by_id_) {
    const auto wake = deployment->NextWake();
    if (wake.has_value() && (!next.has_value() || *wake < *next)) {
      next = wake;
    }
  }
  return next;
}

bool Deployments::AnyServes() const {
  return std::any_of(by_id_.begin(), by_id_.end(), [](const auto& entry) {
    return entry.second->serves() && !entry.second->engine()->down();
  });
}

void Deployments::StopAdmitting(const absl::Status& why) {
  stopping_ = true;
  for (auto& [id, deployment] : by_id_) {
    if (deployment->engine() != nullptr) deployment->engine()->StopAdmitting(why);
  }
}

size_t Deployments::live_requests() const {
  size_t live = 0;
  for (const auto& [id, deployment] : by_id_) {
    live += deployment->engine() != nullptr ? deployment->engine()->live_sessions() : 0;
  }
  return live;
}

void Deployments::AddNotRestored(const std::string& model, uint64_t id, const absl::Status& why) {
  not_restored_[model] = {id, why};
}

uint64_t Deployments::NotRestoredOf(const std::string& model) const {
  const auto it = not_restored_.find(model);
  return it == not_restored_.end() ? 0 : it->second.id;
}

void Deployments::ForgetNotRestored(uint64_t id) {
  std::erase_if(not_restored_, [id](const auto& lost) { return lost.second.id == id; });
}

}  // namespace strata
