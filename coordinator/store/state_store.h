// What survives the coordinator: models, deployments with their plans and epochs, nodes, and the
// term. Sessions are not stored.
#ifndef STRATA_COORDINATOR_STORE_STATE_STORE_H_
#define STRATA_COORDINATOR_STORE_STATE_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "strata/v1/membership.pb.h"
#include "strata/v1/types.pb.h"

namespace strata {

struct StoredModel {
  std::string name;
  std::string path;      // Of the checkpoint.
  std::string manifest;  // As ModelManifest writes it.
  bool owned = false;    // The files are the coordinator's own (pulled or uploaded).
};

struct StoredDeployment {
  uint64_t id = 0;
  std::string model;
  v1::LoadOptions options;
  v1::Plan plan;  // With its newest epoch.
};

struct StoredNode {
  v1::NodeInfo info;  // As last registered.
  bool draining = false;
};

// Any thread. What was written is on disk when a call returns. Errors: FAILED_PRECONDITION
// (STORE_BROKEN, STORE_NEWER) and RESOURCE_EXHAUSTED (DISK_FULL) name the file and what to do.
class StateStore {
 public:
  virtual ~StateStore() = default;

  // One more than ever before.
  virtual absl::StatusOr<uint64_t> RaiseTerm() = 0;
  // Made when the store was.
  virtual absl::StatusOr<std::string> ClusterId() = 0;

  virtual absl::Status SaveModel(const StoredModel& model) = 0;
  virtual absl::Status RemoveModel(const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<StoredModel>> ListModels() = 0;

  // Never given before.
  virtual absl::StatusOr<uint64_t> NextDeploymentId() = 0;
  virtual absl::Status SaveDeployment(const StoredDeployment& deployment) = 0;
  // NOT_FOUND when the deployment is not there (any more).
  virtual absl::Status UpdatePlan(uint64_t id, const v1::Plan& plan) = 0;
  virtual absl::Status RemoveDeployment(uint64_t id) = 0;
  virtual absl::StatusOr<std::vector<StoredDeployment>> ListDeployments() = 0;

  virtual absl::Status SaveNode(const std::string& name, const v1::NodeInfo& info,
                                bool draining) = 0;
  virtual absl::Status RemoveNode(const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<StoredNode>> ListNodes() = 0;
};

// A SQLite database at `path`; ":memory:" for one that goes with the object.
absl::StatusOr<std::unique_ptr<StateStore>> OpenSqliteStore(const std::string& path);

}  // namespace strata

#endif  // STRATA_COORDINATOR_STORE_STATE_STORE_H_
