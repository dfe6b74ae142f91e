#include "coordinator/deployment/deployment.h"

#include <algorithm>
#include <utility>

#include "common/app/log.h"
#include "common/limits.h"
#include "common/plan.h"
#include "common/status.h"
#include "coordinator/deployment/errors.h"

namespace strata {
namespace {

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

Deployment::Deployment(uint64_t id, std::shared_ptr<const DeployedModel> model, v1::Plan plan,
                       v1::LoadOptions load_options, RotaryBlob rotary, DeploymentOptions options,
                       DeploymentHost* host)
    : id_(id),
      model_(std::move(model)),
      plan_(std::move(plan)),
      load_options_(std::move(load_options)),
      rotary_(std::move(rotary)),
      options_(options),
      host_(host),
      epochs_(model_->name, [this] { host_->RecordLater(id_); }),
      loading_(options_.load_timeout),
      state_since_(host->Now()),
      retry_(options_.retry),
      links_(id_, model_->name, options_.step_timeout / 2, host,
             {.wanted = [this] { return engine_ != nullptr && !HoldsRequests(phase_); },
              .linked = [this](uint64_t epoch) { OnLinked(epoch); },
              .fault = [this](uint64_t epoch, const absl::Status& why) { OnFault(epoch, why); }}) {}

Deployment::~Deployment() {
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
  if (!HoldsRequests(phase_)) {
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
  Move(DeploymentEvent::kLoad);
  retry_.Begin();
  if (absl::Status status = epochs_.Use(plan_.epoch()); !status.ok()) {
    GiveUp(DeploymentEvent::kFail, status);
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

uint64_t Deployment::NextEpoch() const { return std::max(plan_.epoch(), links_.epoch()) + 1; }

StoredDeployment Deployment::RecordOf(const v1::Plan& plan, const v1::LoadOptions& options) const {
  StoredDeployment stored;
  stored.id = id_;
  stored.model = model_->name;
  stored.options = options;
  stored.plan = plan;
  stored.plan.set_epoch(RecordedEpochs::Ahead(NextEpoch()));
  return stored;
}

void Deployment::OnRecorded(uint64_t epoch, const absl::Status& status) {
  epochs_.OnRecorded(epoch, status);
  if (!status.ok()) {
    LogError(
        {{"model", model_->name}, {"deployment", id_}, {"epochs_left", epochs_.Left(NextEpoch())}},
        "the model's plan cannot be recorded: " + Describe(status));
  }
}

bool Deployment::SendLoads() {
  loading_.Begin(host_->Now());
  links_.ForgetFault();
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

LoadSubject Deployment::Subject() const {
  return {.deployment = id_,
          .model = model_.get(),
          .plan = &plan_,
          .options = &load_options_,
          .rotary = &rotary_};
}

v1::Load Deployment::MakeLayerLoad(uint32_t layer, uint32_t tokens, uint32_t rows) const {
  return strata::MakeLayerLoad(Subject(), layer, tokens, rows);
}

v1::Load Deployment::MakeLoad(int stage) const {
  NextHop next{.node = "", .incarnation = host_->coordinator_incarnation(), .address = ""};
  if (stage + 1 < OnlyPipeline(plan_).stages_size()) {
    const v1::PlanRank& rank = RankOf(stage + 1);
    next = {rank.node(), rank.incarnation(), host_->AddressOf(rank.node())};
  }
  // Half, so that a link that cannot be opened is reported before the fence is given up.
  return MakeStageLoad(Subject(), stage, next, options_.max_batch_items, options_.step_timeout / 2);
}

void Deployment::Unload(const absl::Status& why) {
  StopEngine(why);
  TellWorkersToUnload();
  host_->OnPlacement(id_, plan_, false, false);
  Move(DeploymentEvent::kWait);
}

void Deployment::TellWorkersToUnload() {
  for (int i = 0; i < OnlyPipeline(plan_).stages_size(); ++i) {
    v1::CoordinatorMessage message;
    message.mutable_unload()->set_deployment(id_);
    host_->SendToNode(RankOf(i).node(), RankOf(i).incarnation(), std::move(message));
  }
}

void Deployment::StopEngine(const absl::Status& why) {
  Move(DeploymentEvent::kRequestsEnd);
  links_.Drop();
  if (engine_ != nullptr) {
    engine_->Stop(why, host_->Now());
    links_.SkipTo(engine_->epoch());
    stopped_engine_ = std::move(engine_);
  }
}

void Deployment::GiveUp(DeploymentEvent event, const absl::Status& why) {
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
  Move(event);
  state_since_ = host_->Now();
  problem_ = why;
  if (event == DeploymentEvent::kFail) {
    retry_.Failed(why, was_loaded || MayGoByItself(why), host_->Now());
  }
  TellWorkersToUnload();
  host_->OnPlacement(id_, plan_, false, false);
}

void Deployment::OnNodeLost(const std::string& node) {
  if (!Uses(node) || state() == DeploymentState::kWaiting || state() == DeploymentState::kFailed) {
    return;
  }
  const absl::Status why =
      Error(absl::StatusCode::kUnavailable, "NODE_LOST",
            "node '" + node + "', which holds layers of model '" + model_->name + "', is lost")
          .Node(node)
          .Hint("start its worker again, or place the model anew with `strata model load " +
                model_->name + "`; then send the request again");
  const bool may_wait = engine_ != nullptr && !leaving_ && phase_ != DeploymentPhase::kResizing;
  if (may_wait && engine_->live_sessions() > 0) {
    AwaitNode(why);
  } else {
    GiveUp(DeploymentEvent::kWait, why);
  }
}

void Deployment::AwaitNode(const absl::Status& why) {
  LogError({{"model", model_->name}, {"deployment", id_}, {"epoch", plan_.epoch()}}, Describe(why));
  const bool holds_requests = HoldsRequests(phase_);
  Move(DeploymentEvent::kAwaitNode);
  if (!holds_requests) {
    links_.Drop();
    links_.SkipTo(engine_->epoch());
    engine_->LoseStages(why, host_->Now());
    LogInfo({{"model", model_->name},
             {"deployment", id_},
             {"node", DetailOf(why).node()},
             {"requests", engine_->live_sessions()}},
            "requests wait for the node");
  }
  state_since_ = host_->Now();
  problem_ = why;
  TellWorkersToUnload();
  host_->OnPlacement(id_, plan_, false, false);
}

void Deployment::OnNodeLeaving(const std::string& node) {
  if (!Uses(node) || leaving_ || state() == DeploymentState::kWaiting ||
      state() == DeploymentState::kFailed) {
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
    GiveUp(DeploymentEvent::kWait, why);
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
  if (Uses(node) && phase_ == DeploymentPhase::kFailed) {
    Move(DeploymentEvent::kWait);
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
  if (!Loads(phase_) || progress.epoch() != plan_.epoch() || !Uses(node)) {
    return;
  }
  loading_.OnProgress(node, progress, host_->Now());
  if (progress.phase() == v1::LoadProgress::PHASE_FAILED) {
    v1::ErrorDetail detail = progress.error();
    detail.set_node(node);
    LoadFailed(Annotate(StatusOf(detail), "node '" + node + "' cannot load its layers"));
    return;
  }
  if (!loading_.AllReady(plan_)) {
    return;
  }
  const DeploymentPhase before = phase_;
  Move(DeploymentEvent::kLoaded);
  if (before == DeploymentPhase::kReloading) {
    LogInfo({{"model", model_->name},
             {"deployment", id_},
             {"epoch", plan_.epoch()},
             {"requests", engine_->live_sessions()}},
            "requests go on");
    engine_->Resume(plan_.epoch(), host_->Now());
  } else if (before == DeploymentPhase::kLoading) {
    StartEngine();
  } else {
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
    GiveUp(DeploymentEvent::kFail, why);
  }
}

absl::Status Deployment::CheckResize(const v1::Plan& plan) const {
  if (phase_ != DeploymentPhase::kReady || engine_ == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_READY",
                 "model '" + model_->name + "' is " + DeploymentStateName(state()))
        .Hint("try again once it is ready; see `strata model show " + model_->name + "`");
  }
  return engine_->CheckFits(EngineStages(plan));
}

absl::Status Deployment::Resize(const v1::Plan& plan, const v1::LoadOptions& options) {
  RETURN_IF_ERROR(CheckResize(plan));
  Placing resized{plan, options};
  resized.plan.set_epoch(NextEpoch());
  RETURN_IF_ERROR(epochs_.Use(resized.plan.epoch()));
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
  links_.Drop();
  plan_ = std::move(placing.plan);
  load_options_ = std::move(placing.options);
  Move(DeploymentEvent::kResize);
  engine_->Suspend(EngineStages(plan_), host_->Now());
  SendLoads();
}

void Deployment::UndoResize(const absl::Status& why) {
  LogError({{"model", model_->name}, {"deployment", id_}},
           "the model keeps its KV: " + Describe(why));
  Placing before = *before_resize_;
  before.plan.set_epoch(NextEpoch());
  if (absl::Status status = epochs_.Use(before.plan.epoch()); !status.ok()) {
    GiveUp(DeploymentEvent::kFail, status);
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
  config.weights_digest = model_->weights_digest();
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
  if (HoldsRequests(phase_) && (engine_->down() || engine_->live_sessions() == 0)) {
    StopEngine(problem_.ok() ? absl::UnavailableError("nobody waits any more") : problem_);
  }
  if (!epoch_problem_.ok()) {
    GiveUp(DeploymentEvent::kFail, std::exchange(epoch_problem_, absl::OkStatus()));
  } else if (leaving_ && engine_ != nullptr && engine_->live_sessions() == 0) {
    GiveUp(DeploymentEvent::kWait, absl::Status(problem_));
  } else if (phase_ == DeploymentPhase::kLinking && engine_->down()) {
    // Loaded, but its stages cannot be linked.
    GiveUp(DeploymentEvent::kFail,
           links_.last_fault().ok()
               ? absl::Status(
                     Error(absl::StatusCode::kUnavailable, "LINKS_NOT_OPENED",
                           "the stages of model '" + model_->name + "' could not be linked in time")
                         .Hint("`strata node list` names nodes that cannot be reached"))
               : links_.last_fault());
  }
}

}  // namespace strata
