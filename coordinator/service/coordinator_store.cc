// What the store keeps: the part of Coordinator that changes it.
#include <utility>

#include "common/app/log.h"
#include "common/status.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/service/errors.h"

namespace strata {
namespace {

// When the store refused something, which it may take once its disk has room.
constexpr nanoseconds kSaveAgain = std::chrono::seconds(5);

}  // namespace

void Coordinator::RecordLater(uint64_t deployment) {
  unsaved_deployments_.insert(deployment);
  SaveLater();
}

void Coordinator::SaveLater() {
  if (!std::exchange(saving_, true)) {
    RunBlocking([this] { SaveWhatWaits(); });
  }
}

std::optional<Coordinator::Unsaved> Coordinator::TakeUnsaved() {
  if (unsaved_nodes_.empty() && unsaved_deployments_.empty() && forgotten_nodes_.empty()) {
    return std::nullopt;
  }
  Unsaved unsaved;
  for (const std::string& name : std::exchange(unsaved_nodes_, {})) {
    if (const NodeRecord* node = cluster_.Find(name)) {
      unsaved.nodes.push_back({name, node->info, node->draining});
    }
  }
  for (const uint64_t id : std::exchange(unsaved_deployments_, {})) {
    if (const Deployment* deployment = FindDeployment(id)) {
      unsaved.deployments.push_back(deployment->Record());
    }
  }
  for (const std::string& name : std::exchange(forgotten_nodes_, {})) {
    if (cluster_.Find(name) == nullptr) {
      unsaved.forgotten.push_back(name);
    }
  }
  return unsaved;
}

void Coordinator::SaveWhatWaits() {
  while (true) {
    MutexLock lock(&changes_);
    const auto unsaved = loop_.Call([this] {
      auto taken = TakeUnsaved();
      saving_ = taken.has_value();
      return taken;
    });
    if (!unsaved.has_value() || !unsaved->has_value()) {
      return;
    }
    if (!Save(**unsaved)) {
      loop_.Call([this] {
        saving_ = false;
        save_again_ = clock_->Now() + kSaveAgain;
        return true;
      });
      return;
    }
  }
}

bool Coordinator::Save(const Unsaved& unsaved) {
  bool all = true;
  for (const StoredDeployment& deployment : unsaved.deployments) {
    const absl::Status saved = store_->SaveDeployment(deployment);
    // Another record is newer, or a deployment was replaced: nothing is left to do.
    const bool again = !saved.ok() && !absl::IsFailedPrecondition(saved);
    all &= !again;
    loop_.Post([this, id = deployment.id, epoch = deployment.plan.epoch(), saved, again] {
      if (Deployment* recorded = FindDeployment(id)) {
        recorded->OnRecorded(epoch, saved);
        if (again) unsaved_deployments_.insert(id);
      }
    });
  }
  for (const StoredNode& node : unsaved.nodes) {
    if (absl::Status saved = store_->SaveNode(node.name, node.info, node.draining); !saved.ok()) {
      LogError({{"node", node.name}}, strata::Describe(saved));
      all = false;
      loop_.Post([this, name = node.name] { unsaved_nodes_.insert(name); });
    }
  }
  if (absl::Status removed = store_->RemoveNodes(unsaved.forgotten); !removed.ok()) {
    LogError({{"nodes", uint64_t{unsaved.forgotten.size()}}}, strata::Describe(removed));
    all = false;
    loop_.Post(
        [this, names = unsaved.forgotten] { forgotten_nodes_.insert(names.begin(), names.end()); });
  }
  return all;
}

absl::Status Coordinator::Erase(uint64_t id, const absl::Status& why) {
  if (id == 0) {
    return absl::OkStatus();
  }
  const absl::Status removed = store_->RemoveDeployment(id);
  const auto done = loop_.Call([&]() -> absl::Status {
    Deployment* deployment = FindDeployment(id);
    if (deployment == nullptr) {
      if (removed.ok()) {
        std::erase_if(not_restored_, [id](const auto& lost) { return lost.second.id == id; });
      }
      return draining_ ? Stopping() : removed;
    }
    if (!removed.ok()) {
      deployment->Hold(false);
      return removed;
    }
    deployment->Unload(why);
    deployments_.erase(id);
    return absl::OkStatus();
  });
  return done.value_or(Stopping());
}

}  // namespace strata
