#include "tests/coordinator/engine/runner_stage.h"

#include <utility>

#include "tests/worker/runner/slice_cost.h"

namespace strata {

RunnerStage::RunnerStage(const EngineConfig& config, const ModelSpec& model, uint32_t stage) {
  const auto stages = static_cast<uint32_t>(config.stages.size());
  const auto layers = static_cast<uint32_t>(model.layers.size());
  StageSpec spec;
  spec.model = model;
  spec.first_layer = layers * stage / stages;
  spec.last_layer = layers * (stage + 1) / stages - 1;
  spec.embeds = stage == 0;
  spec.heads = stage + 1 == stages;
  spec.context = config.context;
  spec.kv_pages = config.stages[stage].kv_pages;
  spec.max_batch_tokens = config.max_batch_tokens;
  spec.max_batch_items = config.max_batch_items;
  config_ = {config.stages[stage].node, config.deployment,    config.epoch, stage, stages, spec,
             config.weights_digest,     config.numerics_class};
  Restart();
}

void RunnerStage::Restart() {
  runner_.reset();
  shard_ = std::make_unique<testing::HashShard>(config_.spec);
  runner_ = std::make_unique<ShardRunner>(config_, shard_.get(), &clock_);
  config_.epoch = 0;  // Of the next life: the newest fence says which.
}

void RunnerStage::SetCosts(double fixed_ms, double row_ms) {
  fixed_ms_ = fixed_ms;
  row_ms_ = row_ms;
}

double RunnerStage::MsOf(const v1::StepFrame& frame) const {
  const testing::SliceCost cost =
      testing::CostOf(frame, {config_.spec.first_layer, config_.spec.last_layer});
  return fixed_ms_ * cost.layers + row_ms_ * cost.rows;
}

absl::StatusOr<SimStage::Output> RunnerStage::Step(StepMessage frame) {
  const double ms = MsOf(frame.header);
  absl::StatusOr<ShardRunner::Output> output = runner_->Step(std::move(frame));
  if (!output.ok()) {
    return output.status();
  }
  const auto say = [&](auto* header) {
    if (fixed_ms_ > 0) {
      testing::SayComputeMs(ms, header);
    }
  };
  if (auto* next = std::get_if<StepMessage>(&*output)) {
    say(&next->header);
    return Output{std::move(*next)};
  }
  if (auto* result = std::get_if<ResultMessage>(&*output)) {
    say(&result->header);
    return Output{std::move(*result)};
  }
  return Output{};
}

SimCluster::StageFactory RunnerStages(ModelSpec model) {
  return [model = std::move(model)](const EngineConfig& config, uint32_t stage) {
    return std::make_unique<RunnerStage>(config, model, stage);
  };
}

SimCluster::StageFactory RunnerStages(ModelSpec model, double fixed_ms, double row_ms) {
  return [model = std::move(model), fixed_ms, row_ms](const EngineConfig& config, uint32_t stage) {
    auto made = std::make_unique<RunnerStage>(config, model, stage);
    made->SetCosts(fixed_ms, row_ms);
    return made;
  };
}

}  // namespace strata
