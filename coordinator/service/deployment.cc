#include "coordinator/service/deployment.h"

#include <algorithm>
#include <utility>

#include "common/app/log.h"
#include "common/limits.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/service/errors.h"
#include "coordinator/service/layer_check.h"

namespace strata {
namespace {

// Epochs that a record leaves for use before the next one. Half of them are left when that is asked
// for: a disk may be slow for as many fences.
constexpr uint64_t kEpochsAhead = 1000;

std::vector<EngineStage> EngineStages(const v1::Plan& plan) {
  std::vector<EngineStage> stages;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    EngineStage& out = stages.emplace_back();
    out.node = OnlyRank(stage).node();
    out.kv_pages.assign(stage.kv_pages().begin(), stage.kv_pages().end());
    out.predicted_ms = stage.predicted_ms();
    out.layers = stage.last_layer() - stage.first_layer() + 1;
  }
  return stages;
}

}  // namespace

const char* DeploymentStateName(DeploymentState state) {
  switch (state) {
    case DeploymentState::kLoading:
      return "loading";
    case DeploymentState::kReady:
      return "ready";
    case DeploymentState::kResizing:
      return "resizing";
    case DeploymentState::kWaiting:
      return "waiting";
    case DeploymentState::kFailed:
      return "failed";
  }
  return "?";
}

Deployment::Deployment(uint64_t id, std::shared_ptr<const ModelRuntime> model, v1::Plan plan,
                       v1::LoadOptions load_options, RotaryBlob rotary, DeploymentOptions options,
                       DeploymentHost* host)
    : id_(id),
      model_(std::move(model)),
      plan_(std::move(plan)),
      load_options_(std::move(load_options)),
      rotary_(std::move(rotary)),
      options_(options),
      host_(host),
      state_since_(host->Now()),
      retry_(options_.retry) {}

Deployment::~Deployment() {
  *alive_ = false;
  StopEngine(Error(absl::StatusCode::kUnavailable, "UNLOADED",
                   "model '" + model_->name + "' was taken off its workers"));
}

const v1::PlanRank& Deployment::RankOf(int stage) const {
  return OnlyRank(OnlyPipeline(plan_).stages(stage));
}

bool Deployment::Uses(const std::string& node) const {
  const auto& stages = OnlyPipeline(plan_).stages();
  return std::any_of(stages.begin(), stages.end(),
                     [&](const v1::PlanStage& stage) { return OnlyRank(stage).node() == node; });
}

void Deployment::Load(const std::map<std::string, uint64_t>& incarnations) {
  if (!awaiting_) {
    StopEngine(Error(absl::StatusCode::kUnavailable, "RELOADING",
                     "model '" + model_->name + "' is being loaded again")
                   .Hint("send the request again in a moment"));
  }
  plan_.set_epoch(NextEpoch());
  for (v1::PlanStage& stage : *OnlyPipeline(&plan_)->mutable_stages()) {
    v1::PlanRank* rank = OnlyRank(&stage);
    const auto it = incarnations.find(rank->node());
    rank->set_incarnation(it == incarnations.end() ? 0 : it->second);
  }
  problem_ = absl::OkStatus();
  leaving_ = false;
  state_ = DeploymentState::kLoading;
  retry_.Begin();
  if (absl::Status status = UseEpoch(plan_.epoch()); !status.ok()) {
    Fail(DeploymentState::kFailed, status);
    return;
  }
  if (SendLoads()) {
    LogInfo({{"model", model_->name},
             {"deployment", id_},
             {"epoch", plan_.epoch()},
             {"stages", static_cast<uint32_t>(OnlyPipeline(plan_).stages_size())}},
            "the model loads");
  }
}

uint64_t Deployment::NextEpoch() const { return std::max(plan_.epoch(), fence_epoch_) + 1; }

StoredDeployment Deployment::RecordOf(const v1::Plan& plan, const v1::LoadOptions& options) const {
  StoredDeployment stored;
  stored.id = id_;
  stored.model = model_->name;
  stored.options = options;
  stored.plan = plan;
  stored.plan.set_epoch(NextEpoch() + kEpochsAhead);
  return stored;
}

void Deployment::OnRecorded(uint64_t epoch, const absl::Status& status) {
  recording_ = false;
  record_problem_ = status;
  if (status.ok()) {
    recorded_epoch_ = std::max(recorded_epoch_, epoch);
  } else {
    LogError({{"model", model_->name},
              {"deployment", id_},
              {"epochs_left", recorded_epoch_ - std::min(recorded_epoch_, NextEpoch() - 1)}},
             "the model's plan cannot be recorded: " + Describe(status));
  }
}

absl::Status Deployment::UseEpoch(uint64_t epoch) {
  if (!recording_ && (!record_problem_.ok() || epoch + kEpochsAhead / 2 > recorded_epoch_)) {
    recording_ = true;
    host_->RecordLater(id_);
  }
  if (epoch <= recorded_epoch_) {
    return absl::OkStatus();
  }
  return !record_problem_.ok()
             ? record_problem_
             : Error(absl::StatusCode::kUnavailable, "EPOCHS_NOT_RECORDED",
                     "model '" + model_->name + "' has used all epochs up to " +
                         std::to_string(recorded_epoch_) +
                         ", and the state store has not taken a record of more yet")
                   .Limit("epochs=" + std::to_string(kEpochsAhead))
                   .Hint(
                       "see to the disk of the coordinator's --data-dir, then `strata model load " +
                       model_->name + "`");
}

bool Deployment::SendLoads() {
  progress_.clear();
  load_sent_ = host_->Now();
  all_loaded_ = false;
  last_fault_ = absl::OkStatus();
  host_->OnPlacement(id_, plan_, true, false);
  for (int i = 0; i < OnlyPipeline(plan_).stages_size(); ++i) {
    v1::CoordinatorMessage message;
    *message.mutable_load() = MakeLoad(i);
    const v1::PlanRank& rank = RankOf(i);
    if (!host_->SendToNode(rank.node(), rank.incarnation(), std::move(message))) {
      OnNodeLost(rank.node());
      return false;
    }
  }
  return true;
}

v1::Load Deployment::LoadOfLayers(uint32_t first_layer, uint32_t last_layer) const {
  v1::Load load;
  load.set_deployment(id_);
  load.set_epoch(plan_.epoch());
  load.set_model(model_->name);
  load.set_config_json(model_->manifest->config_json);
  load.set_weights_digest(model_->manifest->weights_digest);
  load.set_first_layer(first_layer);
  load.set_last_layer(last_layer);
  const bool last = last_layer + 1 == model_->spec().layers.size();
  for (v1::TensorBlob& tensor :
       model_->StageTensors(first_layer, last_layer, first_layer == 0, last)) {
    *load.add_tensors() = std::move(tensor);
  }
  load.set_rotary_sha256(rotary_.sha256);
  load.set_rotary_bytes(rotary_.bytes);
  load.set_context(load_options_.context());
  load.set_kv_dtype(load_options_.kv_dtype());
  load.set_quantize(load_options_.quantize());
  load.set_activations(load_options_.activations());
  load.set_wire_dtype(v1::WIRE_DTYPE_F32);
  load.set_numerics_class(plan_.numerics_class().name());
  return load;
}

v1::Load Deployment::MakeLayerLoad(uint32_t layer, uint32_t tokens) const {
  const ModelSpec& spec = model_->spec();
  v1::Load load = LoadOfLayers(layer, layer);
  load.set_stage(layer);
  load.set_stage_count(static_cast<uint32_t>(spec.layers.size()));
  for (uint32_t group = 0; group < spec.kv_groups.size(); ++group) {
    const bool used = KvBytesPerToken(spec, layer, layer, group, 1) != 0;
    load.add_kv_pages(used ? (tokens + kPageTokens - 1) / kPageTokens : 0);
  }
  load.set_max_batch_tokens(kReferenceRows);
  load.set_max_batch_items(1);
  load.set_max_in_flight(1);
  return load;
}

v1::Load Deployment::MakeLoad(int index) const {
  const v1::PlanPipeline& pipeline = OnlyPipeline(plan_);
  const v1::PlanStage& stage = pipeline.stages(index);
  const bool last = index + 1 == pipeline.stages_size();
  v1::Load load = LoadOfLayers(stage.first_layer(), stage.last_layer());
  load.set_stage(static_cast<uint32_t>(index));
  load.set_stage_count(static_cast<uint32_t>(pipeline.stages_size()));
  *load.mutable_kv_pages() = stage.kv_pages();
  load.set_max_batch_tokens(load_options_.max_batch_tokens());
  load.set_max_batch_items(options_.max_batch_items);
  load.set_max_in_flight(static_cast<uint32_t>(pipeline.stages_size()) + 1);
  if (!last) {
    const v1::PlanRank& next = RankOf(index + 1);
    load.set_next_node(next.node());
    load.set_next_incarnation(next.incarnation());
    load.set_next_address(host_->AddressOf(next.node()));
  } else {
    load.set_next_incarnation(host_->coordinator_incarnation());
  }
  // Half, so that a link that cannot be opened is reported before the fence is given up.
  load.set_step_timeout_ms(static_cast<uint32_t>(ToMs(options_.step_timeout / 2)));
  return load;
}

void Deployment::Unload(const absl::Status& why) {
  StopEngine(why);
  TellWorkersToUnload();
  host_->OnPlacement(id_, plan_, false, false);
  state_ = DeploymentState::kWaiting;
}

void Deployment::TellWorkersToUnload() {
  for (int i = 0; i < OnlyPipeline(plan_).stages_size(); ++i) {
    v1::CoordinatorMessage message;
    message.mutable_unload()->set_deployment(id_);
    host_->SendToNode(RankOf(i).node(), RankOf(i).incarnation(), std::move(message));
  }
}

void Deployment::StopEngine(const absl::Status& why) {
  awaiting_ = false;
  first_link_.reset();
  unfenced_.clear();
  if (engine_ != nullptr) {
    engine_->Stop(why, host_->Now());
    fence_epoch_ = std::max(fence_epoch_, engine_->epoch());
    stopped_engine_ = std::move(engine_);
  }
}

void Deployment::Fail(DeploymentState state, const absl::Status& why) {
  LogError({{"model", model_->name}, {"deployment", id_}, {"epoch", plan_.epoch()}}, Describe(why));
  const bool was_loaded = engine_ != nullptr;  // What links refuse, a new load may mend.
  StopEngine(NotServed(model_->name, why));
  if (before_resize_.has_value()) {
    // What is loaded next is what is known to fit.
    const uint64_t epoch = plan_.epoch();
    plan_ = std::move(before_resize_->plan);
    plan_.set_epoch(epoch);
    load_options_ = std::move(before_resize_->options);
    before_resize_.reset();
    resize_problem_ = why;
    host_->RecordLater(id_);
  }
  state_ = state;
  state_since_ = host_->Now();
  problem_ = why;
  if (state == DeploymentState::kFailed) {
    retry_.Failed(why, was_loaded || MayGoByItself(why), host_->Now());
  }
  TellWorkersToUnload();
  host_->OnPlacement(id_, plan_, false, false);
}

void Deployment::OnNodeLost(const std::string& node) {
  if (!Uses(node) || state_ == DeploymentState::kWaiting || state_ == DeploymentState::kFailed) {
    return;
  }
  const absl::Status why =
      Error(absl::StatusCode::kUnavailable, "NODE_LOST",
            "node '" + node + "', which holds layers of model '" + model_->name + "', is lost")
          .Node(node)
          .Hint("start its worker again, or place the model anew with `strata model load " +
                model_->name + "`; then send the request again");
  const bool may_wait = engine_ != nullptr && !leaving_ && state_ != DeploymentState::kResizing;
  if (may_wait && engine_->live_sessions() > 0) {
    AwaitNode(why);
  } else {
    Fail(DeploymentState::kWaiting, why);
  }
}

void Deployment::AwaitNode(const absl::Status& why) {
  LogError({{"model", model_->name}, {"deployment", id_}, {"epoch", plan_.epoch()}}, Describe(why));
  if (!awaiting_) {
    first_link_.reset();
    unfenced_.clear();
    fence_epoch_ = std::max(fence_epoch_, engine_->epoch());
    awaiting_ = true;
    engine_->LoseStages(why, host_->Now());
    LogInfo({{"model", model_->name},
             {"deployment", id_},
             {"node", DetailOf(why).node()},
             {"requests", engine_->live_sessions()}},
            "requests wait for the node");
  }
  state_ = DeploymentState::kWaiting;
  state_since_ = host_->Now();
  problem_ = why;
  TellWorkersToUnload();
  host_->OnPlacement(id_, plan_, false, false);
}

void Deployment::OnNodeLeaving(const std::string& node) {
  if (!Uses(node) || leaving_ || state_ == DeploymentState::kWaiting ||
      state_ == DeploymentState::kFailed) {
    return;
  }
  const absl::Status why =
      Error(absl::StatusCode::kUnavailable, "NODE_STOPPED",
            "node '" + node + "', which holds layers of model '" + model_->name +
                "', is being stopped")
          .Node(node)
          .Hint("start its worker again, or place the model anew with `strata model load " +
                model_->name + "`; then send the request again");
  if (engine_ == nullptr) {
    Fail(DeploymentState::kWaiting, why);
    return;
  }
  LogInfo({{"model", model_->name},
           {"deployment", id_},
           {"node", node},
           {"requests", engine_->live_sessions()}},
          "requests in flight may end before the node stops");
  leaving_ = true;
  problem_ = why;
}

void Deployment::OnNodeJoined(const std::string& node) {
  if (Uses(node) && state_ == DeploymentState::kFailed) {
    state_ = DeploymentState::kWaiting;
    state_since_ = host_->Now();
  }
}

void Deployment::SetWaitingFor(const std::vector<std::string>& nodes) {
  std::string names;
  for (const std::string& node : nodes) {
    names += (names.empty() ? "'" : ", '") + node + "'";
  }
  problem_ =
      Error(absl::StatusCode::kUnavailable, "WAITING_FOR_NODES",
            "model '" + model_->name + "' waits for " + names)
          .Node(nodes.empty() ? "" : nodes.front())
          .Hint("start strata-worker there, or place the model anew with `strata model load " +
                model_->name + "`");
}

void Deployment::OnLoadProgress(const std::string& node, const v1::LoadProgress& progress) {
  if (!loads() || progress.epoch() != plan_.epoch() || !Uses(node)) {
    return;
  }
  const auto [it, fresh] = progress_.try_emplace(node);
  WorkerProgress& worker = it->second;
  if (fresh || worker.progress.phase() != progress.phase() ||
      worker.progress.done_bytes() != progress.done_bytes() ||
      worker.progress.fetched_bytes() != progress.fetched_bytes()) {
    worker.advanced = host_->Now();
  }
  worker.progress = progress;
  if (progress.phase() == v1::LoadProgress::PHASE_FAILED) {
    v1::ErrorDetail detail = progress.error();
    detail.set_node(node);
    LoadFailed(Annotate(StatusOf(detail), "node '" + node + "' cannot load its layers"));
    return;
  }
  worker.ready = progress.phase() == v1::LoadProgress::PHASE_READY;
  all_loaded_ = AllReady();
  if (!all_loaded_) {
    return;
  }
  if (awaiting_) {
    awaiting_ = false;
    LogInfo({{"model", model_->name},
             {"deployment", id_},
             {"epoch", plan_.epoch()},
             {"requests", engine_->live_sessions()}},
            "requests go on");
    engine_->Resume(plan_.epoch(), host_->Now());
  } else if (state_ == DeploymentState::kLoading) {
    StartEngine();
  } else {
    state_ = DeploymentState::kReady;
    before_resize_.reset();
    host_->OnPlacement(id_, plan_, true, true);
    const EngineSnapshot snapshot = engine_->Snapshot(host_->Now());
    LogInfo({{"model", model_->name},
             {"deployment", id_},
             {"epoch", plan_.epoch()},
             {"kv_tokens", snapshot.kv_tokens},
             {"limiting_node", snapshot.limiting_node}},
            "the model goes on with its new KV");
    engine_->Resume(plan_.epoch(), host_->Now());
  }
}

void Deployment::LoadFailed(const absl::Status& why) {
  if (before_resize_.has_value()) {
    UndoResize(why);
  } else {
    Fail(DeploymentState::kFailed, why);
  }
}

bool Deployment::AllReady() const {
  const auto& stages = OnlyPipeline(plan_).stages();
  return std::all_of(stages.begin(), stages.end(), [&](const v1::PlanStage& stage) {
    const auto it = progress_.find(OnlyRank(stage).node());
    return it != progress_.end() && it->second.ready;
  });
}

absl::Status Deployment::CheckResize(const v1::Plan& plan) const {
  if (state_ != DeploymentState::kReady || engine_ == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_READY",
                 "model '" + model_->name + "' is " + DeploymentStateName(state_))
        .Hint("try again once it is ready; see `strata model show " + model_->name + "`");
  }
  return engine_->CheckFits(EngineStages(plan));
}

absl::Status Deployment::Resize(const v1::Plan& plan, const v1::LoadOptions& options) {
  RETURN_IF_ERROR(CheckResize(plan));
  Placing resized{plan, options};
  resized.plan.set_epoch(NextEpoch());
  RETURN_IF_ERROR(UseEpoch(resized.plan.epoch()));
  for (int i = 0; i < OnlyPipeline(plan).stages_size(); ++i) {
    v1::PlanRank* rank = OnlyRank(OnlyPipeline(&resized.plan)->mutable_stages(i));
    rank->set_incarnation(RankOf(i).incarnation());
  }
  resize_problem_ = absl::OkStatus();
  before_resize_ = Placing{plan_, load_options_};
  LogInfo({{"model", model_->name},
           {"deployment", id_},
           {"kv_tokens", options.kv_tokens()},
           {"kv_tokens_before", load_options_.kv_tokens()}},
          "the model's KV is resized");
  LoadResized(std::move(resized));
  return absl::OkStatus();
}

void Deployment::LoadResized(Placing placing) {
  first_link_.reset();
  unfenced_.clear();
  plan_ = std::move(placing.plan);
  load_options_ = std::move(placing.options);
  state_ = DeploymentState::kResizing;
  engine_->Suspend(EngineStages(plan_), host_->Now());
  SendLoads();
}

void Deployment::UndoResize(const absl::Status& why) {
  LogError({{"model", model_->name}, {"deployment", id_}},
           "the model keeps its KV: " + Describe(why));
  Placing before = *before_resize_;
  before.plan.set_epoch(NextEpoch());
  if (absl::Status status = UseEpoch(before.plan.epoch()); !status.ok()) {
    Fail(DeploymentState::kFailed, status);
    return;
  }
  before_resize_.reset();
  resize_problem_ = why;
  LoadResized(std::move(before));
  host_->RecordLater(id_);
}

void Deployment::StartEngine() {
  EngineConfig config;
  config.deployment = id_;
  config.epoch = plan_.epoch();
  config.stages = EngineStages(plan_);
  config.kv_groups = model_->spec().kv_groups;
  config.layers = static_cast<uint32_t>(model_->spec().layers.size());
  config.vocab = model_->spec().vocab;
  config.long_rotary_above = LongRotaryAbove(model_->spec());
  config.context = load_options_.context();
  config.model_context = model_->spec().context;
  config.weights_digest = model_->manifest->weights_digest;
  config.numerics_class = plan_.numerics_class().name();
  config.max_batch_tokens = load_options_.max_batch_tokens();
  config.max_batch_items = options_.max_batch_items;
  config.max_queued_requests = options_.max_queued_requests;
  config.max_input_embedding_bytes = options_.max_input_embedding_bytes;
  config.max_sessions = options_.max_sessions;
  config.kv_watermark = options_.kv_watermark;
  config.inter_token_target = options_.inter_token_target;
  config.prefix_cache = options_.prefix_cache;
  config.step_timeout = options_.step_timeout;
  config.recovery_timeout = options_.recovery_timeout;
  engine_ = std::make_unique<Engine>(std::move(config), host_->sequence_numbers(), this);
  state_since_ = host_->Now();
  engine_->Start(host_->Now());
}

void Deployment::Tick(TimePoint now) {
  stopped_engine_ = nullptr;
  EndLateLoad(now);
  if (engine_ != nullptr) {
    engine_->Tick(now);
  }
  if (awaiting_ && (engine_->down() || engine_->live_sessions() == 0)) {
    StopEngine(problem_.ok() ? absl::UnavailableError("nobody waits any more") : problem_);
  }
  if (!epoch_problem_.ok()) {
    Fail(DeploymentState::kFailed, std::exchange(epoch_problem_, absl::OkStatus()));
  } else if (leaving_ && engine_ != nullptr && engine_->live_sessions() == 0) {
    Fail(DeploymentState::kWaiting, absl::Status(problem_));
  } else if (state_ == DeploymentState::kLoading && engine_ != nullptr && engine_->down()) {
    // Loaded, but its stages cannot be linked.
    Fail(DeploymentState::kFailed,
         last_fault_.ok()
             ? absl::Status(
                   Error(absl::StatusCode::kUnavailable, "LINKS_NOT_OPENED",
                         "the stages of model '" + model_->name + "' could not be linked in time")
                       .Hint("`strata node list` names nodes that cannot be reached"))
             : last_fault_);
  }
}

}  // namespace strata
