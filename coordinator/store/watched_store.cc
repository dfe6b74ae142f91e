#include "coordinator/store/watched_store.h"

namespace strata {
namespace {

const absl::Status& StatusIn(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusIn(const absl::StatusOr<T>& result) {
  return result.status();
}

constexpr char kProbe[] = "probe";

}  // namespace

absl::Status WatchedStore::problem() const {
  MutexLock lock(&mutex_);
  return problem_;
}

nanoseconds WatchedStore::changing_for() const {
  MutexLock lock(&mutex_);
  return changing_ == 0 ? nanoseconds(0) : clock_->Now() - changing_since_;
}

void WatchedStore::Probe() { SetSetting(kProbe, "").IgnoreError(); }

void WatchedStore::Note(const absl::Status& status) {
  const bool came_through = status.ok() || absl::IsNotFound(status) ||
                            absl::IsFailedPrecondition(status) || absl::IsAlreadyExists(status);
  MutexLock lock(&mutex_);
  problem_ = came_through ? absl::OkStatus() : status;
  --changing_;
  changing_since_ = clock_->Now();  // Whatever waits for the store begins only now.
}

template <typename Change>
auto WatchedStore::Watch(const Change& change) -> decltype(change()) {
  {
    MutexLock lock(&mutex_);
    if (changing_++ == 0) changing_since_ = clock_->Now();
  }
  auto result = change();
  Note(StatusIn(result));
  return result;
}

absl::StatusOr<uint64_t> WatchedStore::RaiseTerm() {
  return Watch([&] { return store_->RaiseTerm(); });
}
absl::StatusOr<std::string> WatchedStore::ClusterId() { return store_->ClusterId(); }
absl::Status WatchedStore::SaveModel(const StoredModel& model) {
  return Watch([&] { return store_->SaveModel(model); });
}
absl::StatusOr<StoredModel> WatchedStore::GetModel(std::string_view name) {
  return store_->GetModel(name);
}
absl::StatusOr<std::vector<StoredModel>> WatchedStore::ListModels() { return store_->ListModels(); }
absl::Status WatchedStore::RemoveModel(std::string_view name) {
  return Watch([&] { return store_->RemoveModel(name); });
}
absl::StatusOr<uint64_t> WatchedStore::NextDeploymentId() {
  return Watch([&] { return store_->NextDeploymentId(); });
}
absl::Status WatchedStore::SaveDeployment(const StoredDeployment& deployment) {
  return Watch([&] { return store_->SaveDeployment(deployment); });
}
absl::Status WatchedStore::ReplaceDeployment(uint64_t old, const StoredDeployment& deployment) {
  return Watch([&] { return store_->ReplaceDeployment(old, deployment); });
}
absl::StatusOr<std::vector<StoredDeployment>> WatchedStore::ListDeployments() {
  return store_->ListDeployments();
}
absl::Status WatchedStore::RemoveDeployment(uint64_t deployment) {
  return Watch([&] { return store_->RemoveDeployment(deployment); });
}
absl::Status WatchedStore::SaveNode(std::string_view name, const v1::NodeInfo& info,
                                    bool draining) {
  return Watch([&] { return store_->SaveNode(name, info, draining); });
}
absl::StatusOr<std::vector<StoredNode>> WatchedStore::ListNodes() { return store_->ListNodes(); }
absl::Status WatchedStore::RemoveNode(std::string_view name) {
  return Watch([&] { return store_->RemoveNode(name); });
}
absl::Status WatchedStore::RemoveNodes(const std::vector<std::string>& names) {
  return names.empty() ? absl::OkStatus() : Watch([&] { return store_->RemoveNodes(names); });
}
absl::Status WatchedStore::SaveKey(const StoredKey& key) {
  return Watch([&] { return store_->SaveKey(key); });
}
absl::StatusOr<std::vector<StoredKey>> WatchedStore::ListKeys() { return store_->ListKeys(); }
absl::Status WatchedStore::SetSetting(std::string_view key, std::string_view value) {
  return Watch([&] { return store_->SetSetting(key, value); });
}
absl::StatusOr<std::optional<std::string>> WatchedStore::GetSetting(std::string_view key) {
  return store_->GetSetting(key);
}

}  // namespace strata
