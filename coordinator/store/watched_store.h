// A state store that knows whether its changes come through, so that `status` can say when the
// disk below it is full or hangs.
#ifndef STRATA_COORDINATOR_STORE_WATCHED_STORE_H_
#define STRATA_COORDINATOR_STORE_WATCHED_STORE_H_

#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "coordinator/store/state_store.h"

namespace strata {

// Any thread.
class WatchedStore final : public StateStore {
 public:
  // Neither is owned; both outlive this.
  WatchedStore(StateStore* store, const Clock* clock) : store_(store), clock_(clock) {}

  // Why the newest change did not come through, if none has since. What asked for something that is
  // not there, or too old, counts as come through.
  absl::Status problem() const;
  // How long the change that is under way takes already; 0: there is none.
  nanoseconds changing_for() const;
  // Tries a small change, which clears problem() once the store takes one.
  void Probe();

  absl::StatusOr<uint64_t> RaiseTerm() override;
  absl::StatusOr<std::string> ClusterId() override;
  absl::Status SaveModel(const StoredModel& model) override;
  absl::StatusOr<StoredModel> GetModel(std::string_view name) override;
  absl::StatusOr<std::vector<StoredModel>> ListModels() override;
  absl::Status RemoveModel(std::string_view name) override;
  absl::StatusOr<uint64_t> NextDeploymentId() override;
  absl::Status SaveDeployment(const StoredDeployment& deployment) override;
  absl::Status ReplaceDeployment(uint64_t old, const StoredDeployment& deployment) override;
  absl::StatusOr<std::vector<StoredDeployment>> ListDeployments() override;
  absl::Status RemoveDeployment(uint64_t deployment) override;
  absl::Status SaveNode(std::string_view name, const v1::NodeInfo& info, bool draining) override;
  absl::StatusOr<std::vector<StoredNode>> ListNodes() override;
  absl::Status RemoveNode(std::string_view name) override;
  absl::Status RemoveNodes(const std::vector<std::string>& names) override;
  absl::Status SaveKey(const StoredKey& key) override;
  absl::StatusOr<std::vector<StoredKey>> ListKeys() override;
  absl::Status SetSetting(std::string_view key, std::string_view value) override;
  absl::StatusOr<std::optional<std::string>> GetSetting(std::string_view key) override;

 private:
  // Runs a change and notes how it ended.
  template <typename Change>
  auto Watch(const Change& change) -> decltype(change());
  void Note(const absl::Status& status);

  StateStore* const store_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  absl::Status problem_ STRATA_GUARDED_BY(mutex_);
  int changing_ STRATA_GUARDED_BY(mutex_) = 0;
  TimePoint changing_since_ STRATA_GUARDED_BY(mutex_){};  // Since then there is always one.
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_STORE_WATCHED_STORE_H_
