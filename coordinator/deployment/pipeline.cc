#include "coordinator/deployment/pipeline.h"

#include <utility>

#include "common/app/log.h"
#include "common/limits.h"
#include "common/plan.h"
#include "common/status.h"

namespace strata {
namespace {

std::vector<EngineStage> EngineStages(const v1::Plan& plan) {
  std::vector<EngineStage> stages;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    EngineStage& out = stages.emplace_back();
    out.node = FirstRank(stage).node();
    out.kv_pages.assign(stage.kv_pages().begin(), stage.kv_pages().end());
    out.predicted_ms = stage.predicted_ms();
    out.layers = stage.last_layer() - stage.first_layer() + 1;
  }
  return stages;
}

}  // namespace

Pipeline::Pipeline(const PlacedModel* placed, const DeploymentOptions& options,
                   DeploymentHost* host, Events events)
    : placed_(placed),
      options_(options),
      host_(host),
      events_(std::move(events)),
      links_(placed->id(), placed->model()->name, options.step_timeout / 2, host,
             {.wanted = [this] { return engine_ != nullptr && events_.may_link(); },
              .linked = [this](uint64_t epoch) { OnLinked(epoch); },
              .fault = [this](uint64_t epoch, const absl::Status& why) { OnFault(epoch, why); },
              .ahead = [this](const absl::Status& status) { events_.linked_ahead(status); }}) {}

Pipeline::~Pipeline() {
  Stop(Error(absl::StatusCode::kUnavailable, "UNLOADED",
             "model '" + placed_->model()->name + "' was taken off its workers"));
}

// ---- The engine.

EngineConfig Pipeline::MakeConfig() const {
  const ModelSpec& spec = placed_->model()->spec();
  const v1::Plan& plan = placed_->plan();
  EngineConfig config;
  config.deployment = placed_->id();
  config.epoch = plan.epoch();
  config.stages = EngineStages(plan);
  config.kv_groups = spec.kv_groups;
  config.layers = static_cast<uint32_t>(spec.layers.size());
  config.vocab = spec.vocab;
  config.long_rotary_above = LongRotaryAbove(spec);
  config.context = placed_->load_options().context();
  config.model_context = spec.context;
  config.weights_digest = placed_->model()->weights_digest();
  config.numerics_class = plan.numerics_class().name();
  config.max_batch_tokens = placed_->load_options().max_batch_tokens();
  config.max_batch_items = options_.max_batch_items;
  config.max_queued_requests = options_.max_queued_requests;
  config.max_input_embedding_bytes = options_.max_input_embedding_bytes;
  config.max_sessions = options_.max_sessions;
  config.kv_watermark = options_.kv_watermark;
  config.inter_token_target = options_.inter_token_target;
  config.prefix_cache = options_.prefix_cache;
  config.make_drafter = options_.make_drafter;
  config.speculate_memory = options_.speculate_memory;
  const LoadSpeculate speculate =
      ParseLoadSpeculate(placed_->load_options().speculate()).value_or(LoadSpeculate());
  config.speculate = speculate.by;
  config.draft_model = !speculate.model.empty();
  config.step_timeout = options_.step_timeout;
  config.stall_timeout = options_.stall_timeout;
  config.recovery_timeout = options_.recovery_timeout;
  return config;
}

void Pipeline::Start() {
  engine_ = std::make_unique<Engine>(MakeConfig(), host_->sequence_numbers(), this);
  engine_->Start(host_->Now());
}

void Pipeline::LeaveEpoch() {
  broken_ = absl::OkStatus();
  links_.Drop();
  links_.SkipTo(engine_->epoch());
  events_.skip_to(engine_->epoch());
}

void Pipeline::Suspend() {
  LeaveEpoch();
  engine_->Suspend(EngineStages(placed_->plan()), host_->Now(),
                   placed_->plan().numerics_class().name());
}

void Pipeline::Repoint() {
  LeaveEpoch();
  engine_->Repoint(EngineStages(placed_->plan()), host_->Now());
}

void Pipeline::LoseStages(const absl::Status& why, nanoseconds patience) {
  LeaveEpoch();
  engine_->LoseStages(why, patience, host_->Now());
}

void Pipeline::Stop(const absl::Status& why) {
  broken_ = absl::OkStatus();
  links_.Drop();
  links_.DropAhead();
  if (engine_ != nullptr) {
    engine_->Stop(why, host_->Now());
    LeaveEpoch();
    stopped_ = std::move(engine_);
  }
}

absl::Status Pipeline::CheckFits(const v1::Plan& plan) const {
  return engine_->CheckFits(EngineStages(plan));
}

void Pipeline::Tick(TimePoint now) {
  if (engine_ != nullptr) {
    engine_->Tick(now);
  }
}

std::optional<TimePoint> Pipeline::NextWake() const {
  return engine_ != nullptr ? engine_->NextWake() : std::nullopt;
}

// ---- Fences, links and results.

void Pipeline::SendFence(uint64_t epoch) {
  links_.Begin(epoch);
  if (epoch != placed_->plan().epoch()) {
    epoch_problem_ = events_.use_epoch(epoch);
    if (!epoch_problem_.ok()) {
      return;  // The next tick ends the deployment, outside of the engine.
    }
  }
  links_.Fence(placed_->plan(), placed_->Fences());
}

bool Pipeline::PlacesElsewhere(const absl::Status& why) {
  if (!events_.may_move()) {
    return false;
  }
  broken_ = why;  // The next tick suspends the engine, outside of it.
  return true;
}

void Pipeline::OnFenceAck(const std::string& node, const v1::FenceAck& ack) {
  if (engine_ != nullptr) {
    links_.OnFenceAck(node, ack, placed_->plan());
  }
}

void Pipeline::OnLinked(uint64_t epoch) {
  events_.linked(epoch);
  engine_->OnFenced(epoch, host_->Now());
}

void Pipeline::OnFault(uint64_t epoch, const absl::Status& why) {
  if (engine_ != nullptr) {
    engine_->OnLinkFault(epoch, why, host_->Now());
  }
}

void Pipeline::OnLinkFault(const std::string& node, const v1::LinkFault& fault) {
  // Stages that a move has left see their links end.
  const bool is_past = engine_ != nullptr && fault.epoch() < engine_->epoch();
  Log(is_past ? LogLevel::kDebug : LogLevel::kWarn,
      {{"model", placed_->model()->name},
       {"deployment", placed_->id()},
       {"epoch", fault.epoch()},
       {"step", fault.step()},
       {"stage", fault.stage()},
       {"node", node}},
      "a node reports a fault: " + fault.error().message());
  OnFault(fault.epoch(), StatusOf(fault.error()));
}

std::optional<uint64_t> Pipeline::AcceptResults(const v1::LinkOpen& open) {
  return engine_ != nullptr ? links_.AcceptResults(open, placed_->plan()) : std::nullopt;
}

void Pipeline::OnResultsClosed(uint64_t link, const absl::Status& status) {
  links_.OnResultsClosed(link, status);
}

void Pipeline::OnResult(uint64_t link, ResultMessage result) {
  if (engine_ != nullptr && links_.IsNewestResults(link)) {
    engine_->OnResult(std::move(result), host_->Now());
  }
}

}  // namespace strata
