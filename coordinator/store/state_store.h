// What a coordinator must not forget: term, cluster id, registered models, deployments with their
// plans and epochs, nodes, API keys, settings. Sessions are not stored. Implementations: SQLite in
// the data directory, and memory for tests and the simulator.
#ifndef STRATA_COORDINATOR_STORE_STATE_STORE_H_
#define STRATA_COORDINATOR_STORE_STATE_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/store/stored_key.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/types.pb.h"

namespace strata {

// A registered model.
struct StoredModel {
  std::string name;      // Unique.
  std::string path;      // The checkpoint folder.
  std::string manifest;  // JSON, as coordinator/registry writes it.
  std::string digest;    // SHA-256 of the weights, hex.
  // Where the files came from: "path" (the user's own, never deleted), "upload" or "pull".
  std::string origin = "path";
};

// A model under a plan. The plan carries its epoch.
struct StoredDeployment {
  uint64_t id = 0;
  std::string model;
  v1::LoadOptions options;
  v1::Plan plan;
  std::string desired_state = "loaded";
};

// A node that has been seen.
struct StoredNode {
  std::string name;
  v1::NodeInfo info;  // As it last registered.
  bool draining = false;
};

// Any thread. A change is durable when its call has returned ok, and absent when it has failed.
// Errors: NOT_FOUND and ALREADY_EXISTS name the thing; UNAVAILABLE (STORE_LOCKED, STORE_IO),
// DATA_LOSS (STORE_CORRUPT) and RESOURCE_EXHAUSTED (STORE_FULL) name the file and what to do.
class StateStore {
 public:
  virtual ~StateStore() = default;

  // Raises the coordinator's term and returns it; from 1. At every start. Durable, and higher than
  // any before, also where the disk has no room for anything else.
  virtual absl::StatusOr<uint64_t> RaiseTerm() = 0;
  // 32 hexadecimal digits, drawn when the store was made.
  virtual absl::StatusOr<std::string> ClusterId() = 0;

  // Adds the model, or replaces the one of that name.
  virtual absl::Status SaveModel(const StoredModel& model) = 0;
  virtual absl::StatusOr<StoredModel> GetModel(std::string_view name) = 0;
  virtual absl::StatusOr<std::vector<StoredModel>> ListModels() = 0;  // By name.
  virtual absl::Status RemoveModel(std::string_view name) = 0;

  // A number that was never given before; from 1.
  virtual absl::StatusOr<uint64_t> NextDeploymentId() = 0;
  // Adds the deployment, or replaces the one of that id. FAILED_PRECONDITION (STALE_EPOCH) when
  // the stored plan's epoch is newer.
  virtual absl::Status SaveDeployment(const StoredDeployment& deployment) = 0;
  // Saves the deployment and removes `old`, NOT_FOUND if there is none: both or neither.
  virtual absl::Status ReplaceDeployment(uint64_t old, const StoredDeployment& deployment) = 0;
  virtual absl::StatusOr<std::vector<StoredDeployment>> ListDeployments() = 0;  // By id.
  virtual absl::Status RemoveDeployment(uint64_t deployment) = 0;

  // Adds the node, or replaces the one of that name.
  virtual absl::Status SaveNode(std::string_view name, const v1::NodeInfo& info, bool draining) = 0;
  virtual absl::StatusOr<std::vector<StoredNode>> ListNodes() = 0;  // By name.
  virtual absl::Status RemoveNode(std::string_view name) = 0;
  // All of them at once or none; those that are not there are none to remove.
  virtual absl::Status RemoveNodes(const std::vector<std::string>& names) = 0;

  // Adds the API key, or replaces the one of that id.
  virtual absl::Status SaveKey(const StoredKey& key) = 0;
  virtual absl::StatusOr<std::vector<StoredKey>> ListKeys() = 0;  // By id.

  // Small values by key.
  virtual absl::Status SetSetting(std::string_view key, std::string_view value) = 0;
  virtual absl::StatusOr<std::optional<std::string>> GetSetting(std::string_view key) = 0;
};

// Opens or makes the SQLite database `path`; its folder exists, and takes `path`.term, where terms
// are kept that the database has no room for. FAILED_PRECONDITION (STORE_NEWER)
// when a newer version of Strata wrote it, STORE_LOCKED when another process holds it.
absl::StatusOr<std::unique_ptr<StateStore>> OpenSqliteStore(const std::string& path);

// Forgets everything with the object. `cluster_id` is what ClusterId gives.
std::unique_ptr<StateStore> MakeMemoryStore(std::string cluster_id);

}  // namespace strata

#endif  // STRATA_COORDINATOR_STORE_STATE_STORE_H_
