// Placing, loading and unloading: the part of Coordinator that deals with deployments.
#include <algorithm>
#include <utility>

#include "common/app/log.h"
#include "common/limits.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/engine/step_timing.h"
#include "coordinator/planner/planner.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/service/errors.h"

namespace strata {
namespace {

constexpr uint32_t kDefaultSessions = 4;
constexpr milliseconds kLookAgain{20};
// Epochs of deployments that a process takes up from the store begin at its term times 2^this:
// terms are durable whatever the store can write, so no earlier process has used them.
constexpr unsigned kEpochTermShift = 32;

// Whether two plans put the same layers on the same nodes with the same KV.
bool SamePlacement(const v1::Plan& a, const v1::Plan& b) {
  const auto& x = OnlyPipeline(a).stages();
  const auto& y = OnlyPipeline(b).stages();
  return a.numerics_class().name() == b.numerics_class().name() &&
         std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](const v1::PlanStage& s, const v1::PlanStage& t) {
                      return OnlyRank(s).node() == OnlyRank(t).node() &&
                             s.first_layer() == t.first_layer() &&
                             s.last_layer() == t.last_layer() &&
                             std::equal(s.kv_pages().begin(), s.kv_pages().end(),
                                        t.kv_pages().begin(), t.kv_pages().end());
                    });
}

// How large steps are at first, a sentence.
std::string FirstSteps(const v1::Plan& plan, const v1::LoadOptions& options,
                       nanoseconds step_timeout) {
  std::vector<double> predicted_ms;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    predicted_ms.push_back(stage.predicted_ms());
  }
  const StepTiming timing(predicted_ms, step_timeout, options.max_batch_tokens());
  return "a step has " + std::to_string(timing.TokenBudget()) +
         " rows at most to begin with, by the predicted speed, and never more than " +
         std::to_string(options.max_batch_tokens()) +
         " (--max-batch-tokens); then it follows what steps take";
}

// A node of the plan whose disk cannot take its stage's weights, even if they are all that is
// cached there; "": there is none.
std::string NodeWithoutDisk(const PlannerCluster& cluster, const v1::Plan& plan) {
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    for (const PlannerNode& node : cluster.nodes) {
      if (node.name == OnlyRank(stage).node() && node.cache_bytes < stage.weight_bytes()) {
        return node.name;
      }
    }
  }
  return "";
}

void DropNode(const std::string& name, PlannerCluster* cluster) {
  const auto it = std::find_if(cluster->nodes.begin(), cluster->nodes.end(),
                               [&](const PlannerNode& node) { return node.name == name; });
  const auto index = it - cluster->nodes.begin();
  cluster->nodes.erase(it);
  cluster->links.erase(cluster->links.begin() + index);
  for (auto& row : cluster->links) {
    row.erase(row.begin() + index);
  }
}

absl::StatusOr<v1::Plan> NoDisk(const std::string& model) {
  return Error(absl::StatusCode::kResourceExhausted, "NO_DISK",
               "there is no other node to place model '" + model + "' on")
      .Hint("free space on the disk of their --data-dir, or add a worker");
}

}  // namespace

absl::Status Coordinator::Start() {
  RETURN_IF_ERROR(keys_.Load(Now()));
  ASSIGN_OR_RETURN(const auto nodes, store_->ListNodes());
  for (const StoredNode& node : nodes) {
    cluster_.Restore(node.info, node.draining, Now());
  }
  ASSIGN_OR_RETURN(const auto deployments, store_->ListDeployments());
  for (const StoredDeployment& stored : deployments) {
    auto model = models_->Get(stored.model);
    if (absl::Status shape = CheckPlanShape(stored.plan); model.ok() && !shape.ok()) {
      model = std::move(shape);
    }
    if (!model.ok()) {
      LogError({{"model", stored.model}, {"deployment", stored.id}},
               strata::Describe(model.status()));
      not_restored_[stored.model] = {stored.id, model.status()};
      continue;
    }
    const auto rotary = models_->Rotary(**model, stored.options.context());
    if (!rotary.ok()) {
      LogError({{"model", stored.model}, {"deployment", stored.id}},
               strata::Describe(rotary.status()));
      not_restored_[stored.model] = {stored.id, rotary.status()};
      continue;
    }
    // No epoch of an earlier process is used again, even if the store could not be told of it.
    v1::Plan plan = stored.plan;
    plan.set_epoch(std::max(plan.epoch(), term_ << kEpochTermShift));
    auto& deployment = deployments_[stored.id];
    deployment = std::make_unique<Deployment>(stored.id, *model, std::move(plan), stored.options,
                                              *rotary, options_.deployment, this);
    deployment->OnRecorded(((term_ + 1) << kEpochTermShift) - 1, absl::OkStatus());
    LogInfo({{"model", stored.model}, {"deployment", stored.id}},
            "the model loads again once its workers are back");
  }
  Reconcile();  // The loop does not run yet: nobody else is here.
  loop_.Start();
  return absl::OkStatus();
}

Deployment* Coordinator::FindDeployment(uint64_t id) const {
  const auto it = deployments_.find(id);
  return it == deployments_.end() ? nullptr : it->second.get();
}

Deployment* Coordinator::DeploymentOf(const std::string& model) const {
  for (const auto& [id, deployment] : deployments_) {
    if (deployment->model()->name == model) {
      return deployment.get();
    }
  }
  return nullptr;
}

// Loads what waits for nodes that are all back.
void Coordinator::Reconcile() {
  for (auto& [id, deployment] : deployments_) {
    if (deployment->state() != DeploymentState::kWaiting) {
      continue;
    }
    std::map<std::string, uint64_t> incarnations;
    std::vector<std::string> missing;
    for (const v1::PlanStage& stage : OnlyPipeline(deployment->plan()).stages()) {
      const NodeRecord* node = cluster_.Find(OnlyRank(stage).node());
      if (node == nullptr || !node->alive || node->leaving()) {
        missing.push_back(OnlyRank(stage).node());
      }
      if (node != nullptr) {
        incarnations[OnlyRank(stage).node()] = node->info.incarnation();
      }
    }
    if (missing.empty()) {
      deployment->Load(incarnations);
    } else {
      deployment->SetWaitingFor(missing);
    }
  }
}

namespace {

// Weight and activation formats: what is asked for, or the defaults.
absl::Status CompleteFormats(const ModelRuntime& model, v1::LoadOptions* options) {
  const StoredKinds kinds = StoredKindsOf(*model.manifest);
  const bool quantizes =
      options->quantize() == v1::QUANTIZE_INT8 || options->quantize() == v1::QUANTIZE_INT4;
  if (!kinds.quantizable && quantizes) {
    return Error(absl::StatusCode::kInvalidArgument, "ALREADY_QUANTIZED",
                 "model '" + model.name + "' is stored quantized, and cannot be quantized again")
        .Hint("load it as stored: --quantize none");
  }
  if (options->activations() == v1::ACTIVATIONS_INT8 && !kinds.integers && !quantizes) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_ACTIVATIONS",
                 "--activations int8 needs quantized weights, and those of model '" + model.name +
                     "' are floats")
        .Hint("add --quantize int8, or leave --activations out");
  }
  if (!quantizes) options->set_quantize(v1::QUANTIZE_NONE);
  if (options->activations() == v1::ACTIVATIONS_UNSPECIFIED) {
    options->set_activations(kinds.integers || quantizes ? v1::ACTIVATIONS_INT8
                                                         : v1::ACTIVATIONS_F32);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::LoadOptions> Coordinator::Complete(const ModelRuntime& model,
                                                      v1::LoadOptions options) const {
  const uint32_t most = model.spec().context;
  if (options.context() > most) {
    return Error(absl::StatusCode::kInvalidArgument, "CONTEXT_EXCEEDED",
                 "a context of " + std::to_string(options.context()) + " tokens, but model '" +
                     model.name + "' was made for " + std::to_string(most))
        .Limit("context=" + std::to_string(most))
        .Hint("choose --context " + std::to_string(most) +
              " or less; where the model's authors extend it by YaRN, write the rope_scaling that "
              "they give into config.json, and add the model again");
  }
  RETURN_IF_ERROR(CompleteFormats(model, &options));
  if (options.kv_dtype() == v1::KV_DTYPE_BF16) {
    return Error(absl::StatusCode::kUnimplemented, "NOT_SUPPORTED",
                 "--kv-dtype bf16 is not supported yet")
        .Hint("use --kv-dtype f16 or f32");
  }
  if (options.goal() == v1::PLAN_GOAL_UNSPECIFIED) options.set_goal(v1::PLAN_GOAL_LATENCY);
  if (options.context() == 0) {
    options.set_context(
        static_cast<uint32_t>(std::min<uint64_t>(most, options_.max_model_context)));
  }
  if (options.sessions() == 0) options.set_sessions(kDefaultSessions);
  if (options.kv_tokens() == 0) {
    options.set_kv_tokens(uint64_t{options.context()} * options.sessions());
  }
  if (options.kv_dtype() == v1::KV_DTYPE_UNSPECIFIED) options.set_kv_dtype(v1::KV_DTYPE_F16);
  if (options.max_batch_tokens() == 0) options.set_max_batch_tokens(options_.max_batch_tokens);
  return options;
}

// Takes the snapshot on the loop and plans here, so that planning holds nothing up.
absl::StatusOr<v1::Plan> Coordinator::MakePlanFor(const ModelRuntime& model,
                                                  const v1::LoadOptions& options,
                                                  PlannerCluster* cluster) {
  ASSIGN_OR_RETURN(*cluster, loop_.Ask([&] {
    const Deployment* old = DeploymentOf(model.name);
    return cluster_.Snapshot(old != nullptr ? old->id() : 0);
  }));
  if (cluster->nodes.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition, "NO_NODES",
                 "there is no live worker to place model '" + model.name + "' on")
        .Hint("start one: strata-worker --coordinator HOST:PORT");
  }
  PlannerRequest request;
  request.options = options;
  const PlannerModel planned = model.ForPlanner(options);
  ASSIGN_OR_RETURN(v1::Plan plan, MakePlan(*cluster, planned, request));
  // Who named the nodes hears from them what is wrong with their disks.
  const bool chosen = !options.layers().empty() || !options.nodes().empty();
  std::vector<std::string> full;
  for (std::string node = chosen ? "" : NodeWithoutDisk(*cluster, plan); !node.empty();
       node = NodeWithoutDisk(*cluster, plan)) {
    full.push_back(node);
    DropNode(node, cluster);
    auto other = cluster->nodes.empty() ? NoDisk(model.name) : MakePlan(*cluster, planned, request);
    if (!other.ok()) {
      return Annotate(other.status(),
                      "without " + SomeOf(full) + ", whose disk has no room for its weights");
    }
    plan = *std::move(other);
  }
  if (!full.empty()) {
    plan.add_why("without " + SomeOf(full) + ": no room for its weights on the disk of --data-dir");
  }
  plan.add_why(FirstSteps(plan, options, options_.deployment.step_timeout));
  return plan;
}

absl::StatusOr<v1::Plan> Coordinator::PlanModel(const std::string& name,
                                                const v1::LoadOptions& options) {
  ASSIGN_OR_RETURN(const auto model, models_->Get(name));
  ASSIGN_OR_RETURN(const v1::LoadOptions complete, Complete(*model, options));
  PlannerCluster cluster;
  return MakePlanFor(*model, complete, &cluster);
}

absl::StatusOr<v1::Plan> Coordinator::LoadModel(const std::string& name,
                                                const v1::LoadOptions& options) {
  ASSIGN_OR_RETURN(const auto model, models_->Get(name));
  ASSIGN_OR_RETURN(const v1::LoadOptions complete, Complete(*model, options));
  PlannerCluster cluster;
  ASSIGN_OR_RETURN(const v1::Plan plan, MakePlanFor(*model, complete, &cluster));
  ASSIGN_OR_RETURN(const RotaryBlob rotary, models_->Rotary(*model, complete.context()));
  return Place(model, complete, plan, rotary);
}

// Another load may have taken the memory since the plan's snapshot.
absl::Status Coordinator::CheckStillFits(const ModelRuntime& model, const v1::LoadOptions& options,
                                         const v1::Plan& plan) const {
  const Deployment* old = DeploymentOf(model.name);
  const PlannerCluster now = cluster_.Snapshot(old != nullptr ? old->id() : 0);
  const auto& stages = OnlyPipeline(plan).stages();
  for (int i = 0; i < stages.size(); ++i) {
    const uint64_t needs = stages[i].weight_bytes() + stages[i].kv_bytes() +
                           StageOverheadBytes(model.spec(), options.max_batch_tokens(),
                                              i + 1 == stages.size(), options.context());
    for (const PlannerNode& node : now.nodes) {
      if (node.name == OnlyRank(stages[i]).node() && node.free_bytes < needs) {
        return Error(absl::StatusCode::kAborted, "CLUSTER_CHANGED",
                     "another load took memory of node '" + node.name +
                         "' while this one was being placed")
            .Node(node.name)
            .Limit("free_bytes=" + std::to_string(node.free_bytes))
            .Hint("try again");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Coordinator::Placeable> Coordinator::CheckPlace(
    const std::shared_ptr<const ModelRuntime>& model, const v1::LoadOptions& options,
    const v1::Plan& plan) {
  if (draining_) {
    return Stopping();
  }
  ASSIGN_OR_RETURN(const auto registered, models_->Get(model->name));
  if (registered != model) {
    return Error(absl::StatusCode::kAborted, "MODEL_REPLACED",
                 "model '" + model->name + "' was registered anew while it was being placed")
        .Hint("try again");
  }
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    const NodeRecord* node = cluster_.Find(OnlyRank(stage).node());
    if (node == nullptr || !node->alive ||
        node->info.incarnation() != OnlyRank(stage).incarnation()) {
      return Error(absl::StatusCode::kAborted, "CLUSTER_CHANGED",
                   "node '" + OnlyRank(stage).node() + "' left while the model was being placed")
          .Hint("try again");
    }
  }
  RETURN_IF_ERROR(CheckStillFits(*model, options, plan));
  Placeable placeable;
  if (Deployment* old = DeploymentOf(model->name)) {
    const bool running = old->serves() || old->state() == DeploymentState::kLoading;
    if (running && SamePlacement(old->plan(), plan) &&
        old->load_options().context() == options.context()) {
      placeable.loaded = old->plan();
      return placeable;
    }
    if (old->engine() != nullptr && old->engine()->live_sessions() > 0) {
      return Error(absl::StatusCode::kFailedPrecondition, "MODEL_IN_USE",
                   "model '" + model->name + "' is loaded otherwise and has " +
                       std::to_string(old->engine()->live_sessions()) + " requests in flight")
          .Hint("wait for them, or `strata model unload " + model->name + " --force` first");
    }
    old->Hold(true);
    placeable.old = old->id();
    placeable.epoch = old->plan().epoch();
  } else if (const auto lost = not_restored_.find(model->name); lost != not_restored_.end()) {
    placeable.old = lost->second.id;  // Its record goes.
  }
  return placeable;
}

absl::StatusOr<v1::Plan> Coordinator::Place(std::shared_ptr<const ModelRuntime> model,
                                            const v1::LoadOptions& options, const v1::Plan& plan,
                                            const RotaryBlob& rotary) {
  MutexLock lock(&changes_);
  ASSIGN_OR_RETURN(const Placeable placeable,
                   loop_.Ask([&] { return CheckPlace(model, options, plan); }));
  if (placeable.loaded.has_value()) {
    return *placeable.loaded;
  }
  std::unique_ptr<Deployment> deployment;
  auto record = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const uint64_t id, store_->NextDeploymentId());
    v1::Plan placed = plan;
    placed.set_epoch(placeable.epoch);
    deployment = std::make_unique<Deployment>(id, model, std::move(placed), options, rotary,
                                              options_.deployment, this);
    const StoredDeployment stored = deployment->Record();
    RETURN_IF_ERROR(placeable.old == 0 ? store_->SaveDeployment(stored)
                                       : store_->ReplaceDeployment(placeable.old, stored));
    deployment->OnRecorded(stored.plan.epoch(), absl::OkStatus());
    return absl::OkStatus();
  };
  const absl::Status recorded = record();
  const auto placed = loop_.Call([&]() -> absl::StatusOr<v1::Plan> {
    Deployment* old = FindDeployment(placeable.old);
    if (!recorded.ok()) {
      if (old != nullptr) old->Hold(false);
      return recorded;
    }
    if (draining_) {
      return Stopping();
    }
    if (old != nullptr) {
      old->Unload(Error(absl::StatusCode::kUnavailable, "REPLACED",
                        "model '" + model->name + "' is being placed anew"));
      deployments_.erase(placeable.old);
    }
    not_restored_.erase(model->name);
    Deployment* started = deployment.get();
    deployments_[started->id()] = std::move(deployment);
    Reconcile();
    return started->plan();
  });
  return placed.has_value() ? *placed : Stopping();
}

namespace {

// Why it is not loaded, and when it is tried again by itself.
absl::Status WithRetry(const Deployment& deployment) {
  if (!deployment.retry().due().has_value()) {
    return deployment.problem();
  }
  v1::ErrorDetail detail = DetailOf(deployment.problem());
  detail.set_hint((detail.hint().empty() ? "" : detail.hint() + "; ") +
                  "the load is tried again by itself: `strata model show " +
                  deployment.model()->name + "` says when");
  return StatusOf(detail);
}

}  // namespace

absl::StatusOr<v1::LoadModelProgress> Coordinator::LoadStatus(const std::string& name) {
  return loop_
      .Call([&]() -> absl::StatusOr<v1::LoadModelProgress> {
        const Deployment* deployment = DeploymentOf(name);
        if (deployment == nullptr) {
          return Error(absl::StatusCode::kAborted, "UNLOADED",
                       "model '" + name + "' was unloaded meanwhile");
        }
        if (deployment->state() == DeploymentState::kFailed ||
            deployment->state() == DeploymentState::kWaiting) {
          return deployment->problem().ok() ? Error(absl::StatusCode::kUnavailable, "WAITING",
                                                    "model '" + name + "' waits for its workers")
                                            : WithRetry(*deployment);
        }
        v1::LoadModelProgress progress;
        *progress.mutable_plan() = deployment->plan();
        for (auto& worker : deployment->Progress()) {
          *progress.add_workers() = std::move(worker);
        }
        progress.set_ready(deployment->state() == DeploymentState::kReady);
        return progress;
      })
      .value_or(Stopping());
}

absl::Status Coordinator::UnloadModel(const std::string& name, bool force) {
  MutexLock lock(&changes_);
  ASSIGN_OR_RETURN(const uint64_t loaded, loop_.Ask([&]() -> absl::StatusOr<uint64_t> {
    Deployment* deployment = DeploymentOf(name);
    if (const auto lost = not_restored_.find(name);
        deployment == nullptr && lost != not_restored_.end()) {
      return lost->second.id;
    }
    if (deployment == nullptr) {
      return Error(absl::StatusCode::kFailedPrecondition, "MODEL_NOT_LOADED",
                   "model '" + name + "' is not loaded")
          .Hint("see `strata model list`");
    }
    if (deployment->engine() != nullptr && deployment->engine()->live_sessions() > 0 && !force) {
      return Error(absl::StatusCode::kFailedPrecondition, "MODEL_IN_USE",
                   "model '" + name + "' has " +
                       std::to_string(deployment->engine()->live_sessions()) +
                       " requests in flight")
          .Hint("wait for them, cancel them with `strata session cancel ID`, or use --force");
    }
    deployment->Hold(true);
    return deployment->id();
  }));
  return Erase(loaded,
               Error(absl::StatusCode::kAborted, "UNLOADED", "model '" + name + "' was unloaded"));
}

// What the model was loaded with, its layers where they are, and `kv_tokens`.
absl::StatusOr<v1::LoadOptions> Coordinator::ResizedOptions(const std::string& name,
                                                            uint64_t kv_tokens, bool* serves) {
  return loop_.Ask([&]() -> absl::StatusOr<v1::LoadOptions> {
    const Deployment* deployment = DeploymentOf(name);
    if (deployment == nullptr) {
      return Error(absl::StatusCode::kFailedPrecondition, "MODEL_NOT_LOADED",
                   "model '" + name + "' is not loaded")
          .Hint("load it with `strata model load " + name + " --kv-tokens N`");
    }
    if (deployment->held()) {
      return BeingChanged(name);
    }
    *serves = deployment->serves();
    v1::LoadOptions options = deployment->load_options();
    options.set_kv_tokens(kv_tokens);
    options.clear_layers();
    for (const v1::PlanStage& stage : OnlyPipeline(deployment->plan()).stages()) {
      auto* pin = options.add_layers();
      pin->set_node(OnlyRank(stage).node());
      pin->set_first_layer(stage.first_layer());
      pin->set_last_layer(stage.last_layer());
    }
    return options;
  });
}

absl::StatusOr<v1::Plan> Coordinator::ResizeModel(const std::string& name, uint64_t kv_tokens,
                                                  const std::function<bool()>& gone) {
  bool serves = false;
  ASSIGN_OR_RETURN(const v1::LoadOptions options, ResizedOptions(name, kv_tokens, &serves));
  if (!serves) {
    return LoadModel(name, options);
  }
  ASSIGN_OR_RETURN(const auto model, models_->Get(name));
  PlannerCluster cluster;
  ASSIGN_OR_RETURN(const v1::Plan plan, MakePlanFor(*model, options, &cluster));
  RETURN_IF_ERROR(BeginResize(name, options, plan, *model));
  return AwaitResize(name, gone);
}

absl::Status Coordinator::BeginResize(const std::string& name, const v1::LoadOptions& options,
                                      const v1::Plan& plan, const ModelRuntime& model) {
  MutexLock lock(&changes_);
  // None: it is so already.
  using Record = std::optional<StoredDeployment>;
  ASSIGN_OR_RETURN(const Record record, loop_.Ask([&]() -> absl::StatusOr<Record> {
    const Deployment* deployment = DeploymentOf(name);
    if (deployment == nullptr) {
      return Error(absl::StatusCode::kAborted, "UNLOADED",
                   "model '" + name + "' was unloaded meanwhile");
    }
    if (SamePlacement(deployment->plan(), plan)) {
      return std::nullopt;
    }
    RETURN_IF_ERROR(CheckStillFits(model, options, plan));
    RETURN_IF_ERROR(deployment->CheckResize(plan));
    return deployment->RecordOf(plan, options);
  }));
  if (!record.has_value()) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(store_->SaveDeployment(*record));
  const auto begun = loop_.Call([&]() -> absl::Status {
    Deployment* deployment = FindDeployment(record->id);
    if (deployment == nullptr) {
      return Stopping();
    }
    deployment->OnRecorded(record->plan.epoch(), absl::OkStatus());
    const absl::Status resized = deployment->Resize(plan, options);
    if (!resized.ok()) {  // New requests have come, or a node has gone.
      RecordLater(record->id);
    }
    return resized;
  });
  return begun.value_or(Stopping());
}

absl::StatusOr<v1::Plan> Coordinator::AwaitResize(const std::string& name,
                                                  const std::function<bool()>& gone) {
  while (!gone()) {
    std::optional<v1::Plan> plan;
    const auto status = loop_.Call([&]() -> absl::Status {
      const Deployment* deployment = DeploymentOf(name);
      if (deployment == nullptr) {
        return Error(absl::StatusCode::kAborted, "UNLOADED",
                     "model '" + name + "' was unloaded meanwhile");
      }
      if (deployment->state() != DeploymentState::kResizing) {
        RETURN_IF_ERROR(deployment->resize_problem());
        plan = deployment->plan();
      }
      return absl::OkStatus();
    });
    RETURN_IF_ERROR(status.value_or(Stopping()));
    if (plan.has_value()) {
      return *plan;
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  return Error(absl::StatusCode::kCancelled, "CANCELLED",
               "nobody waits any more; the KV of model '" + name + "' is still being changed")
      .Hint("see `strata model show " + name + "`");
}

void Coordinator::OnPlacement(uint64_t deployment, const v1::Plan& plan, bool placed, bool ready) {
  cluster_.ClearPlacement(deployment);
  const Deployment* owner = FindDeployment(deployment);
  if (!placed || owner == nullptr) {
    return;
  }
  const ModelRuntime& model = *owner->model();
  const auto& stages = OnlyPipeline(plan).stages();
  for (int i = 0; i < stages.size(); ++i) {
    const v1::PlanStage& stage = stages[i];
    NodeRecord::Placement placement;
    placement.bytes = stage.weight_bytes() + stage.kv_bytes() +
                      StageOverheadBytes(model.spec(), owner->load_options().max_batch_tokens(),
                                         i + 1 == stages.size(), owner->load_options().context());
    placement.what = model.name + " layers " + std::to_string(stage.first_layer()) + "-" +
                     std::to_string(stage.last_layer());
    placement.ready = ready;
    cluster_.SetPlacement(OnlyRank(stage).node(), deployment, std::move(placement));
  }
}

}  // namespace strata
