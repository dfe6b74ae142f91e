#include "tests/sim/scale_machines.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "common/check.h"
#include "common/plan.h"
#include "coordinator/planner/replacement.h"

namespace strata::sim {
namespace {

constexpr uint32_t kLayersOfAStage = 8;
constexpr uint64_t kLayerBytes = uint64_t{100} << 20;
constexpr uint64_t kEndBytes = uint64_t{100} << 20;
constexpr PlannerLink kLan{0.2, 1e8};

PlannerModel MakeModel(uint32_t layers) {
  LayerSpec layer;
  layer.attention.heads = 16;
  layer.attention.kv_heads = 4;
  layer.attention.head_dim = 128;
  layer.attention.rope.rotary_dim = 128;
  layer.mlp.ffn = 5632;
  PlannerModel model;
  model.spec.family = "llama";
  model.spec.hidden = 2048;
  model.spec.vocab = 32000;
  model.spec.context = 8192;
  model.spec.kv_groups = {{}};
  model.spec.layers.assign(layers, layer);
  model.layer_bytes.assign(layers, kLayerBytes);
  model.layer_flops.assign(layers, static_cast<double>(kLayerBytes));
  model.embed_bytes = model.head_bytes = kEndBytes;
  model.head_flops = static_cast<double>(kEndBytes);
  model.weight_format = model.head_format = "bf16";
  model.activations = "f32";
  model.kv_format = "f16";
  return model;
}

}  // namespace

ScaleMachines::ScaleMachines(uint32_t workers, uint32_t pipelines, uint32_t stages,
                             uint64_t kv_tokens)
    : model_(MakeModel(stages * kLayersOfAStage)), workers_(workers) {
  STRATA_CHECK(workers >= pipelines * stages);
  request_.options.set_goal(v1::PLAN_GOAL_THROUGHPUT);
  request_.options.set_context(4096);
  request_.options.set_sessions(1);
  request_.options.set_kv_tokens(kv_tokens);
  request_.options.set_max_batch_tokens(512);
  PlannerRequest pinned = request_;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    v1::LoadOptions::PinnedLayers* pin = pinned.options.add_layers();
    pin->set_node(NameOf(stage));
    pin->set_first_layer(stage * kLayersOfAStage);
    pin->set_last_layer((stage + 1) * kLayersOfAStage - 1);
  }
  // The least that a stage of so many layers fits in.
  v1::Plan first;
  for (uint64_t step = uint64_t{1} << 36; step > 0; step /= 2) {
    worker_bytes_ += step;
    PlannerCluster cluster;
    cluster.nodes = NodesFor(0);
    cluster.nodes.resize(stages);
    cluster.links.assign(stages + 1, std::vector<PlannerLink>(stages + 1, kLan));
    if (absl::StatusOr<v1::Plan> plan = MakePlan(cluster, model_, pinned); plan.ok()) {
      first = *std::move(plan);
      worker_bytes_ -= step;
    }
  }
  ++worker_bytes_;
  for (uint32_t pipeline = 0; pipeline < pipelines; ++pipeline) {
    v1::Plan& plan = plans_.emplace_back(first);
    for (uint32_t stage = 0; stage < stages; ++stage) {
      const uint32_t worker = pipeline * stages + stage;
      workers_[worker].pipeline = pipeline;
      OnlyRank(OnlyPipeline(&plan)->mutable_stages(static_cast<int>(stage)))
          ->set_node(NameOf(worker));
    }
  }
}

std::string ScaleMachines::NameOf(uint32_t worker) { return "w" + std::to_string(worker); }

uint32_t ScaleMachines::NumberOf(const std::string& name) {
  return static_cast<uint32_t>(std::stoul(name.substr(1)));
}

std::optional<uint32_t> ScaleMachines::Lose(uint32_t worker) {
  workers_[worker].away = true;
  return workers_[worker].pipeline;
}

void ScaleMachines::Return(uint32_t worker) {
  workers_[worker].away = false;
  const std::optional<uint32_t> pipeline = workers_[worker].pipeline;
  if (!pipeline.has_value()) {
    return;
  }
  // Its pipeline has not been placed anew yet, and may come to have it again.
  const auto& stages = OnlyPipeline(plans_[*pipeline]).stages();
  if (std::none_of(stages.begin(), stages.end(), [&](const v1::PlanStage& stage) {
        return OnlyRank(stage).node() == NameOf(worker);
      })) {
    workers_[worker].pipeline.reset();
  }
}

std::vector<PlannerNode> ScaleMachines::NodesFor(uint32_t pipeline) const {
  std::vector<PlannerNode> nodes;
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    if (workers_[worker].away) {
      continue;
    }
    PlannerNode& node = nodes.emplace_back();
    node.name = NameOf(worker);
    node.numerics = "cpu-2";
    // What serves another pipeline is full.
    node.free_bytes = workers_[worker].pipeline.value_or(pipeline) == pipeline ? worker_bytes_ : 0;
    node.read_bytes_per_s = 20e9 + 1e9 * (worker % 7);
    node.flops_per_s = 200e9;
  }
  return nodes;
}

absl::Status ScaleMachines::Replace(uint32_t pipeline) {
  const std::clock_t began = std::clock();
  PlannerCluster left;
  left.nodes = NodesFor(pipeline);
  // All links are alike, and those of more nodes do: to make them for each plan takes longer than
  // the plan.
  left.links.swap(links_);
  const size_t ends = workers_.size() + 1;
  left.links.resize(left.nodes.size() + 1, std::vector<PlannerLink>(ends, kLan));
  const absl::StatusOr<v1::Plan> plan =
      PlanReplacement({.before = plans_[pipeline],
                       .nodes = left.nodes,
                       .layer_bytes = model_.layer_bytes,
                       .options = request_.options,
                       .plan = [&](const v1::LoadOptions& options) {
                         PlannerRequest asked = request_;
                         asked.options = options;
                         return MakePlan(left, model_, asked);
                       }});
  links_.swap(left.links);
  planning_s_ += static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  if (!plan.ok()) {
    return plan.status();
  }
  for (Worker& worker : workers_) {
    if (worker.pipeline == pipeline) {
      worker.pipeline.reset();
    }
  }
  plans_[pipeline] = *plan;
  for (const v1::PlanStage& stage : OnlyPipeline(*plan).stages()) {
    workers_[NumberOf(OnlyRank(stage).node())].pipeline = pipeline;
  }
  return absl::OkStatus();
}

}  // namespace strata::sim
