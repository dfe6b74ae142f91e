// Loading, resizing and unloading models: what operators ask, and what a start takes up again.
// Between the placing of a model (placement.h) and its Deployment, with the record in the store.
#ifndef STRATA_COORDINATOR_SERVICE_MODELS_MODEL_LOADS_H_
#define STRATA_COORDINATOR_SERVICE_MODELS_MODEL_LOADS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "coordinator/cluster/cluster_state.h"
#include "coordinator/deployment/deployment.h"
#include "coordinator/deployment/deployments.h"
#include "coordinator/planner/draft_prediction.h"
#include "coordinator/service/loop/event_loop.h"
#include "coordinator/service/models/models.h"
#include "coordinator/service/models/placement.h"
#include "coordinator/service/models/record_writer.h"
#include "coordinator/store/state_store.h"

namespace strata {

struct PlannedModel {
  v1::Plan plan;
  std::vector<DraftPrediction> drafts;  // Empty where the options say that there are none.
};

class ModelLoads {
 public:
  struct Options {
    LoadDefaults defaults;
    DeploymentOptions deployment;  // Of each.
  };

  // Nothing is owned; all outlive this. `deployments` and `cluster` are the loop's; `host` is that
  // of every deployment.
  ModelLoads(const Options& options, EventLoop* loop, Models* models, StateStore* store,
             RecordWriter* records, const ClusterState* cluster, Deployments* deployments,
             DeploymentHost* host)
      : options_(options),
        loop_(loop),
        models_(models),
        store_(store),
        records_(records),
        cluster_(cluster),
        deployments_(deployments),
        host_(host) {}

  // Before the loop runs: takes up what the store says should be loaded, as process number `term`.
  // What cannot be is kept as Deployments::not_restored.
  absl::Status Restore(uint64_t term);

  // The calls of operators: any thread but the loop's; they may wait for the store. All say
  // UNAVAILABLE (STOPPING) once the coordinator ends, and RESOURCE_EXHAUSTED (OVERLOADED) while too
  // many calls wait.

  absl::StatusOr<v1::Plan> Plan(const std::string& name, const v1::LoadOptions& options);
  // The same, and what is predicted beside the plan.
  absl::StatusOr<PlannedModel> PlanHere(const std::string& name, const v1::LoadOptions& options);
  // That for other machines than those of the cluster; by a model itself, of one that need not be
  // registered. Waits for nothing.
  absl::StatusOr<PlannedModel> PlanOn(const std::string& name, const v1::LoadOptions& options,
                                      PlannerCluster machines);
  absl::StatusOr<PlannedModel> PlanOn(const ModelRuntime& model, const v1::LoadOptions& options,
                                      PlannerCluster machines) const;
  // Places and begins to load; answers with the plan. Progress says how it goes on.
  absl::StatusOr<v1::Plan> Load(const std::string& name, const v1::LoadOptions& options);
  // Progress of the newest load; the error that ended it.
  absl::StatusOr<v1::LoadModelProgress> Progress(const std::string& name);
  absl::Status Unload(const std::string& name, bool force);
  // Waits until it is done or undone; gives up waiting, not resizing, when `gone` says so.
  absl::StatusOr<v1::Plan> Resize(const std::string& name, uint64_t kv_tokens,
                                  const std::function<bool()>& gone);
  // Ends the model's registration: from then on loads of it fail, those under way too; files that
  // are not the user's own go.
  absl::Status Remove(const std::string& name, bool force);

  // Unloads a deployment for good; 0: none. An error of the store changes nothing, and it is held
  // no more. The caller holds `changes`, which is RecordWriter::changes.
  absl::Status Erase(uint64_t deployment, const absl::Status& why, const MutexLock& changes);

 private:
  // Where a load that may be placed stands.
  struct Placeable {
    std::optional<v1::Plan> loaded;  // It is placed so already.
    uint64_t old = 0;                // The deployment that it takes the place of: held. Or 0.
    uint64_t epoch = 0;              // Of that one.
  };

  // What deployments of the model leave free; on the loop.
  PlannerCluster Snapshot(const std::string& model) const;
  // Takes the snapshot on the loop and plans here, so that planning holds nothing up.
  // `activations_by_default`: as PlannerRequest has it.
  absl::StatusOr<v1::Plan> MakePlanFor(const ModelRuntime& model, const v1::LoadOptions& options,
                                       bool activations_by_default = false);
  // The model that is to guess for `model`, where the options name one: loaded too, unless it is.
  absl::Status LoadDraftModel(const ModelRuntime& model, const v1::LoadOptions& options);
  absl::StatusOr<v1::Plan> Place(std::shared_ptr<const ModelRuntime> model,
                                 const v1::LoadOptions& options, const v1::Plan& plan,
                                 const RotaryBlob& rotary);
  // On the loop.
  absl::StatusOr<Placeable> CheckPlace(const std::shared_ptr<const ModelRuntime>& model,
                                       const v1::LoadOptions& options, const v1::Plan& plan);
  // What the model was loaded with, its layers where they are, and `kv_tokens`.
  absl::StatusOr<v1::LoadOptions> ResizedOptions(const std::string& name, uint64_t kv_tokens,
                                                 bool* serves);
  absl::Status BeginResize(const std::string& name, const v1::LoadOptions& options,
                           const v1::Plan& plan, const ModelRuntime& model);
  absl::StatusOr<v1::Plan> AwaitResize(const std::string& name, const std::function<bool()>& gone);

  const Options options_;
  EventLoop* const loop_;
  Models* const models_;
  StateStore* const store_;
  RecordWriter* const records_;
  const ClusterState* const cluster_;
  Deployments* const deployments_;
  DeploymentHost* const host_;
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_SERVICE_MODELS_MODEL_LOADS_H_
