#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status.h"
#include "coordinator/store/state_store.h"
#include "coordinator/store/store_errors.h"

namespace strata {
namespace {

template <typename Map>
std::vector<typename Map::mapped_type> Values(const Map& map) {
  std::vector<typename Map::mapped_type> values;
  values.reserve(map.size());
  for (const auto& [key, value] : map) {
    values.push_back(value);
  }
  return values;
}

class MemoryStore : public StateStore {
 public:
  explicit MemoryStore(std::string cluster_id) : cluster_id_(std::move(cluster_id)) {}

  absl::StatusOr<uint64_t> RaiseTerm() override {
    MutexLock lock(&mutex_);
    return ++term_;
  }
  absl::StatusOr<std::string> ClusterId() override { return cluster_id_; }

  absl::Status SaveModel(const StoredModel& model) override {
    MutexLock lock(&mutex_);
    models_[model.name] = model;
    return absl::OkStatus();
  }
  absl::StatusOr<StoredModel> GetModel(std::string_view name) override {
    MutexLock lock(&mutex_);
    const auto found = models_.find(std::string(name));
    if (found == models_.end()) {
      return NoSuchModel(name);
    }
    return found->second;
  }
  absl::StatusOr<std::vector<StoredModel>> ListModels() override {
    MutexLock lock(&mutex_);
    return Values(models_);
  }
  absl::Status RemoveModel(std::string_view name) override {
    MutexLock lock(&mutex_);
    return models_.erase(std::string(name)) == 0 ? NoSuchModel(name) : absl::OkStatus();
  }

  absl::StatusOr<uint64_t> NextDeploymentId() override {
    MutexLock lock(&mutex_);
    return ++last_deployment_;
  }
  absl::Status SaveDeployment(const StoredDeployment& deployment) override {
    MutexLock lock(&mutex_);
    return Save(deployment);
  }
  absl::Status ReplaceDeployment(uint64_t old, const StoredDeployment& deployment) override {
    MutexLock lock(&mutex_);
    if (!deployments_.contains(old)) {
      return NoSuchDeployment(old);
    }
    RETURN_IF_ERROR(Save(deployment));
    deployments_.erase(old);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<StoredDeployment>> ListDeployments() override {
    MutexLock lock(&mutex_);
    return Values(deployments_);
  }
  absl::Status RemoveDeployment(uint64_t deployment) override {
    MutexLock lock(&mutex_);
    return deployments_.erase(deployment) == 0 ? NoSuchDeployment(deployment) : absl::OkStatus();
  }

  absl::Status SaveNode(std::string_view name, const v1::NodeInfo& info, bool draining) override {
    MutexLock lock(&mutex_);
    nodes_[std::string(name)] = {std::string(name), info, draining};
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<StoredNode>> ListNodes() override {
    MutexLock lock(&mutex_);
    return Values(nodes_);
  }
  absl::Status RemoveNode(std::string_view name) override {
    MutexLock lock(&mutex_);
    return nodes_.erase(std::string(name)) == 0 ? NoSuchNode(name) : absl::OkStatus();
  }
  absl::Status RemoveNodes(const std::vector<std::string>& names) override {
    MutexLock lock(&mutex_);
    for (const std::string& name : names) nodes_.erase(name);
    return absl::OkStatus();
  }

  absl::Status SaveKey(const StoredKey& key) override {
    MutexLock lock(&mutex_);
    keys_[key.id] = key;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<StoredKey>> ListKeys() override {
    MutexLock lock(&mutex_);
    return Values(keys_);
  }

  absl::Status SetSetting(std::string_view key, std::string_view value) override {
    MutexLock lock(&mutex_);
    settings_[std::string(key)] = std::string(value);
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<std::string>> GetSetting(std::string_view key) override {
    MutexLock lock(&mutex_);
    const auto found = settings_.find(std::string(key));
    return found == settings_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  absl::Status Save(const StoredDeployment& deployment) STRATA_REQUIRES(mutex_) {
    const auto found = deployments_.find(deployment.id);
    if (found != deployments_.end() && found->second.plan.epoch() > deployment.plan.epoch()) {
      return StaleEpoch(deployment.id, deployment.plan.epoch(), found->second.plan.epoch());
    }
    deployments_[deployment.id] = deployment;
    return absl::OkStatus();
  }

  const std::string cluster_id_;
  Mutex mutex_;
  uint64_t term_ STRATA_GUARDED_BY(mutex_) = 0;
  uint64_t last_deployment_ STRATA_GUARDED_BY(mutex_) = 0;
  std::map<std::string, StoredModel> models_ STRATA_GUARDED_BY(mutex_);
  std::map<uint64_t, StoredDeployment> deployments_ STRATA_GUARDED_BY(mutex_);
  std::map<std::string, StoredNode> nodes_ STRATA_GUARDED_BY(mutex_);
  std::map<std::string, StoredKey> keys_ STRATA_GUARDED_BY(mutex_);
  std::map<std::string, std::string> settings_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<StateStore> MakeMemoryStore(std::string cluster_id) {
  return std::make_unique<MemoryStore>(std::move(cluster_id));
}

}  // namespace strata
