#include "coordinator/service/models/model_loads.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/app/log.h"
#include "common/model/numerics_class.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/deployment/errors.h"
#include "coordinator/deployment/recorded_epochs.h"
#include "coordinator/engine/draft_length.h"
#include "coordinator/engine/drafter.h"
#include "coordinator/engine/scheduler.h"
#include "coordinator/service/loop/errors.h"

namespace strata {
namespace {

constexpr milliseconds kLookAgain{20};

// What the engine's scheduler goes by.
constexpr DraftRules kDraftRules{.most_drafts = kMostDrafts,
                                 .most_steps = kMostSteps,
                                 .least_gain = kLeastDraftGain,
                                 .least_chance = 0.02,  // As DraftLengths has it.
                                 .least_ahead = kLeastAheadChance};

absl::Status UnloadedMeanwhile(const std::string& model) {
  return Error(absl::StatusCode::kAborted, "UNLOADED",
               "model '" + model + "' was unloaded meanwhile");
}

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

absl::Status ModelLoads::Restore(uint64_t term) {
  ASSIGN_OR_RETURN(const auto stored_deployments, store_->ListDeployments());
  for (const StoredDeployment& stored : stored_deployments) {
    const auto not_restored = [&](const absl::Status& why) {
      LogError({{"model", stored.model}, {"deployment", stored.id}}, Describe(why));
      deployments_->AddNotRestored(stored.model, stored.id, why);
    };
    const auto model = models_->Get(stored.model);
    if (!model.ok()) {
      not_restored(model.status());
      continue;
    }
    if (absl::Status shape = CheckPlanShape(stored.plan); !shape.ok()) {
      not_restored(shape);
      continue;
    }
    const auto rotary = models_->Rotary(**model, stored.options.context());
    if (!rotary.ok()) {
      not_restored(rotary.status());
      continue;
    }
    // No epoch of an earlier process is used again, even if the store could not be told of it.
    v1::Plan plan = stored.plan;
    plan.set_epoch(FirstEpochOfTerm(term, plan.epoch()));
    v1::LoadOptions options = stored.options;
    options.set_recovery(RecoveryOf(options));  // Earlier versions left it open.
    auto deployment =
        std::make_unique<Deployment>(stored.id, *model, std::move(plan), std::move(options),
                                     *rotary, options_.deployment, host_);
    deployment->OnRecorded(LastEpochOfTerm(term), absl::OkStatus());
    deployments_->Add(std::move(deployment));
    LogInfo({{"model", stored.model}, {"deployment", stored.id}},
            "the model loads again once its workers are back");
  }
  deployments_->LoadWhatWaits(*cluster_);
  return absl::OkStatus();
}

// ---- Placing.

PlannerCluster ModelLoads::Snapshot(const std::string& model) const {
  const Deployment* old = deployments_->OfModel(model);
  return cluster_->Snapshot(old != nullptr ? old->id() : 0);
}

absl::StatusOr<v1::Plan> ModelLoads::MakePlanFor(const ModelRuntime& model,
                                                 const v1::LoadOptions& options,
                                                 bool activations_by_default) {
  ASSIGN_OR_RETURN(const PlannerCluster cluster, loop_->Ask([&] { return Snapshot(model.name); }));
  return ChooseAndCompare(model, options, cluster, options_.deployment.step_timeout,
                          activations_by_default);
}

absl::StatusOr<v1::Plan> ModelLoads::Plan(const std::string& name, const v1::LoadOptions& options) {
  ASSIGN_OR_RETURN(const auto model, models_->Get(name));
  ASSIGN_OR_RETURN(const v1::LoadOptions complete,
                   CompleteLoadOptions(*model, options_.defaults, options));
  return MakePlanFor(*model, complete, options.activations() == v1::ACTIVATIONS_UNSPECIFIED);
}

absl::StatusOr<PlannedModel> ModelLoads::PlanHere(const std::string& name,
                                                  const v1::LoadOptions& options) {
  ASSIGN_OR_RETURN(PlannerCluster cluster, loop_->Ask([&] { return Snapshot(name); }));
  return PlanOn(name, options, std::move(cluster));
}

absl::StatusOr<PlannedModel> ModelLoads::PlanOn(const std::string& name,
                                                const v1::LoadOptions& options,
                                                PlannerCluster machines) {
  ASSIGN_OR_RETURN(const auto model, models_->Get(name));
  return PlanOn(*model, options, std::move(machines));
}

absl::StatusOr<PlannedModel> ModelLoads::PlanOn(const ModelRuntime& model,
                                                const v1::LoadOptions& options,
                                                PlannerCluster machines) const {
  ASSIGN_OR_RETURN(const v1::LoadOptions complete,
                   CompleteLoadOptions(model, options_.defaults, options));
  PlannedModel planned;
  ASSIGN_OR_RETURN(planned.plan,
                   ChooseAndCompare(model, complete, machines, options_.deployment.step_timeout,
                                    options.activations() == v1::ACTIVATIONS_UNSPECIFIED));
  if (complete.speculate() != "off") {
    planned.drafts =
        PredictDrafts(machines, model.ForPlanner(complete), complete, planned.plan, kDraftRules);
  }
  return planned;
}

absl::StatusOr<v1::Plan> ModelLoads::Load(const std::string& name, const v1::LoadOptions& options) {
  ASSIGN_OR_RETURN(const auto model, models_->Get(name));
  ASSIGN_OR_RETURN(v1::LoadOptions complete,
                   CompleteLoadOptions(*model, options_.defaults, options));
  RETURN_IF_ERROR(LoadDraftModel(*model, complete));
  ASSIGN_OR_RETURN(
      const v1::Plan plan,
      MakePlanFor(*model, complete, options.activations() == v1::ACTIVATIONS_UNSPECIFIED));
  if (!TakesInt8Activations(plan.numerics_class().name())) {
    complete.set_activations(v1::ACTIVATIONS_F32);
  }
  ASSIGN_OR_RETURN(const RotaryBlob rotary, models_->Rotary(*model, complete.context()));
  return Place(model, complete, plan, rotary);
}

absl::Status ModelLoads::LoadDraftModel(const ModelRuntime& model, const v1::LoadOptions& options) {
  ASSIGN_OR_RETURN(const LoadSpeculate speculate, ParseLoadSpeculate(options.speculate()));
  if (speculate.model.empty()) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const auto draft, models_->Get(speculate.model));
  RETURN_IF_ERROR(CheckDraftModel(model, *draft));
  ASSIGN_OR_RETURN(const bool is_loaded,
                   loop_->Ask([&] { return deployments_->OfModel(draft->name) != nullptr; }));
  if (is_loaded) {
    return absl::OkStatus();
  }
  v1::LoadOptions wanted;
  wanted.set_context(std::min(options.context(), draft->spec().context));
  wanted.set_sessions(options.sessions());
  return Annotate(Load(draft->name, wanted).status(), "its draft model");
}

absl::StatusOr<ModelLoads::Placeable> ModelLoads::CheckPlace(
    const std::shared_ptr<const ModelRuntime>& model, const v1::LoadOptions& options,
    const v1::Plan& plan) {
  if (deployments_->stopping()) {
    return Stopping();
  }
  ASSIGN_OR_RETURN(const auto registered, models_->Get(model->name));
  if (registered != model) {
    return Error(absl::StatusCode::kAborted, "MODEL_REPLACED",
                 "model '" + model->name + "' was registered anew while it was being placed")
        .Hint("try again");
  }
  RETURN_IF_ERROR(CheckStillThere(plan, *cluster_));
  RETURN_IF_ERROR(CheckStillFits(*model, options, plan, Snapshot(model->name)));
  Placeable placeable;
  if (Deployment* old = deployments_->OfModel(model->name)) {
    const bool running = old->serves() || old->state() == DeploymentState::kLoading;
    const bool same_drafts = options.speculate().empty() ||  // Who says nothing wants no other.
                             options.speculate() == old->load_options().speculate();
    if (running && same_drafts && SamePlacement(old->plan(), plan) &&
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
  } else {
    placeable.old = deployments_->NotRestoredOf(model->name);  // Its record goes.
  }
  return placeable;
}

absl::StatusOr<v1::Plan> ModelLoads::Place(std::shared_ptr<const ModelRuntime> model,
                                           const v1::LoadOptions& options, const v1::Plan& plan,
                                           const RotaryBlob& rotary) {
  MutexLock lock(records_->changes());
  ASSIGN_OR_RETURN(const Placeable placeable,
                   loop_->Ask([&] { return CheckPlace(model, options, plan); }));
  if (placeable.loaded.has_value()) {
    return *placeable.loaded;
  }
  std::unique_ptr<Deployment> deployment;
  auto record = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const uint64_t id, store_->NextDeploymentId());
    v1::Plan placed = plan;
    placed.set_epoch(placeable.epoch);
    v1::LoadOptions complete = options;
    if (complete.speculate().empty()) {
      complete.set_speculate(DefaultSpeculate(plan));
    }
    deployment = std::make_unique<Deployment>(id, model, std::move(placed), std::move(complete),
                                              rotary, options_.deployment, host_);
    const StoredDeployment stored = deployment->Record();
    RETURN_IF_ERROR(placeable.old == 0 ? store_->SaveDeployment(stored)
                                       : store_->ReplaceDeployment(placeable.old, stored));
    deployment->OnRecorded(stored.plan.epoch(), absl::OkStatus());
    return absl::OkStatus();
  };
  const absl::Status recorded = record();
  const auto placed = loop_->Call([&]() -> absl::StatusOr<v1::Plan> {
    if (!recorded.ok()) {
      if (Deployment* old = deployments_->Find(placeable.old)) old->Hold(false);
      return recorded;
    }
    if (deployments_->stopping()) {
      return Stopping();
    }
    deployments_->Unload(placeable.old, Error(absl::StatusCode::kUnavailable, "REPLACED",
                                              "model '" + model->name + "' is being placed anew"));
    deployments_->ForgetNotRestored(deployments_->NotRestoredOf(model->name));
    Deployment* started = deployment.get();
    deployments_->Add(std::move(deployment));
    deployments_->LoadWhatWaits(*cluster_);
    return started->plan();
  });
  return placed.has_value() ? *placed : Stopping();
}

absl::StatusOr<v1::LoadModelProgress> ModelLoads::Progress(const std::string& name) {
  return loop_
      ->Call([&]() -> absl::StatusOr<v1::LoadModelProgress> {
        const Deployment* deployment = deployments_->OfModel(name);
        if (deployment == nullptr) {
          return UnloadedMeanwhile(name);
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

// ---- Unloading.

absl::Status ModelLoads::Unload(const std::string& name, bool force) {
  MutexLock lock(records_->changes());
  ASSIGN_OR_RETURN(const uint64_t loaded, loop_->Ask([&]() -> absl::StatusOr<uint64_t> {
    Deployment* deployment = deployments_->OfModel(name);
    if (const uint64_t lost = deployments_->NotRestoredOf(name);
        deployment == nullptr && lost != 0) {
      return lost;
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
               Error(absl::StatusCode::kAborted, "UNLOADED", "model '" + name + "' was unloaded"),
               lock);
}

absl::Status ModelLoads::Remove(const std::string& name, bool force) {
  std::string folder;
  {
    // A load is placed either before and refuses this, or after and fails.
    MutexLock lock(records_->changes());
    ASSIGN_OR_RETURN(const uint64_t loaded, loop_->Ask([&]() -> absl::StatusOr<uint64_t> {
      RETURN_IF_ERROR(models_->Get(name).status());
      Deployment* deployment = deployments_->OfModel(name);
      if (deployment == nullptr) {
        return 0;
      }
      if (!force) {
        return Error(absl::StatusCode::kFailedPrecondition, "MODEL_IN_USE",
                     "model '" + name + "' is loaded")
            .Hint("unload it first with `strata model unload " + name + "`, or use --force");
      }
      deployment->Hold(true);
      return deployment->id();
    }));
    RETURN_IF_ERROR(Erase(
        loaded, Error(absl::StatusCode::kAborted, "UNLOADED", "model '" + name + "' was removed"),
        lock));
    ASSIGN_OR_RETURN(folder, models_->Forget(name));
  }
  Models::DeleteFolder(folder);
  return absl::OkStatus();
}

absl::Status ModelLoads::Erase(uint64_t id, const absl::Status& why, const MutexLock&) {
  if (id == 0) {
    return absl::OkStatus();
  }
  const absl::Status removed = store_->RemoveDeployment(id);
  const auto done = loop_->Call([&]() -> absl::Status {
    Deployment* deployment = deployments_->Find(id);
    if (deployment == nullptr) {
      if (removed.ok()) {
        deployments_->ForgetNotRestored(id);
      }
      return deployments_->stopping() ? Stopping() : removed;
    }
    if (!removed.ok()) {
      deployment->Hold(false);
      return removed;
    }
    deployments_->Unload(id, why);
    return absl::OkStatus();
  });
  return done.value_or(Stopping());
}

// ---- Resizing.

absl::StatusOr<v1::LoadOptions> ModelLoads::ResizedOptions(const std::string& name,
                                                           uint64_t kv_tokens, bool* serves) {
  return loop_->Ask([&]() -> absl::StatusOr<v1::LoadOptions> {
    const Deployment* deployment = deployments_->OfModel(name);
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
      if (stage.ranks_size() == 1) {
        pin->set_node(OnlyRank(stage).node());
      } else {
        for (const v1::PlanRank& rank : stage.ranks()) {
          auto* pinned = pin->add_ranks();
          pinned->set_node(rank.node());
          pinned->set_weight(rank.share_end() - rank.share_begin());
        }
      }
      pin->set_first_layer(stage.first_layer());
      pin->set_last_layer(stage.last_layer());
    }
    return options;
  });
}

absl::StatusOr<v1::Plan> ModelLoads::Resize(const std::string& name, uint64_t kv_tokens,
                                            const std::function<bool()>& gone) {
  bool serves = false;
  ASSIGN_OR_RETURN(v1::LoadOptions options, ResizedOptions(name, kv_tokens, &serves));
  if (!serves) {
    options.clear_ranks();  // The layers say it.
    return Load(name, options);
  }
  ASSIGN_OR_RETURN(const auto model, models_->Get(name));
  ASSIGN_OR_RETURN(const v1::Plan plan, MakePlanFor(*model, options));
  RETURN_IF_ERROR(BeginResize(name, options, plan, *model));
  return AwaitResize(name, gone);
}

absl::Status ModelLoads::BeginResize(const std::string& name, const v1::LoadOptions& options,
                                     const v1::Plan& plan, const ModelRuntime& model) {
  MutexLock lock(records_->changes());
  // None: it is so already.
  using Record = std::optional<StoredDeployment>;
  ASSIGN_OR_RETURN(const Record record, loop_->Ask([&]() -> absl::StatusOr<Record> {
    const Deployment* deployment = deployments_->OfModel(name);
    if (deployment == nullptr) {
      return UnloadedMeanwhile(name);
    }
    if (SamePlacement(deployment->plan(), plan)) {
      return std::nullopt;
    }
    RETURN_IF_ERROR(CheckStillFits(model, options, plan, Snapshot(name)));
    RETURN_IF_ERROR(deployment->CheckResize(plan));
    return deployment->RecordOf(plan, options);
  }));
  if (!record.has_value()) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(store_->SaveDeployment(*record));
  const auto begun = loop_->Call([&]() -> absl::Status {
    Deployment* deployment = deployments_->Find(record->id);
    if (deployment == nullptr) {
      return Stopping();
    }
    deployment->OnRecorded(record->plan.epoch(), absl::OkStatus());
    const absl::Status resized = deployment->Resize(plan, options);
    if (!resized.ok()) {  // New requests have come, or a node has gone.
      records_->SaveDeployment(record->id);
    }
    return resized;
  });
  return begun.value_or(Stopping());
}

absl::StatusOr<v1::Plan> ModelLoads::AwaitResize(const std::string& name,
                                                 const std::function<bool()>& gone) {
  while (!gone()) {
    std::optional<v1::Plan> plan;
    const auto status = loop_->Call([&]() -> absl::Status {
      const Deployment* deployment = deployments_->OfModel(name);
      if (deployment == nullptr) {
        return UnloadedMeanwhile(name);
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

}  // namespace strata
