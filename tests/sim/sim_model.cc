#include "tests/sim/sim_model.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/digest.h"
#include "common/layer_weights.h"
#include "common/limits.h"
#include "common/model/rank_outputs.h"
#include "common/plan.h"
#include "common/status.h"
#include "tests/sim/cluster.h"
#include "tests/sim/exact_model.h"
#include "tests/sim/sim_drafts.h"

namespace strata::sim {
namespace {

class SimModel : public DeployedModel {
 public:
  explicit SimModel(uint32_t layers)
      : spec_(ExactModelSpec(layers)),
        embedding_(MakeTensor(kEmbedding)),
        head_(MakeTensor(kHead)) {
    name = "exact";
    for (uint32_t layer = 0; layer < layers; ++layer) {
      layers_.push_back(MakeTensor(LayerTensor(layer)));
    }
  }

  const ModelSpec& spec() const override { return spec_; }
  const std::string& config_json() const override { return config_json_; }
  const std::string& weights_digest() const override { return weights_digest_; }
  std::vector<v1::TensorBlob> StageTensors(uint32_t first_layer, uint32_t last_layer, bool embeds,
                                           bool heads) const override {
    std::vector<v1::TensorBlob> tensors(layers_.begin() + first_layer,
                                        layers_.begin() + last_layer + 1);
    if (embeds) tensors.push_back(embedding_);
    if (heads) tensors.push_back(head_);
    return tensors;
  }

 private:
  static v1::TensorBlob MakeTensor(const std::string& name) {
    v1::TensorBlob tensor;
    tensor.set_name(name);
    tensor.set_sha256(Sha256Hex(name));
    tensor.set_bytes(1);
    return tensor;
  }

  const ModelSpec spec_;
  const std::string config_json_ = "{}";
  const std::string weights_digest_ = kWeightsDigest;
  const v1::TensorBlob embedding_;
  const v1::TensorBlob head_;
  std::vector<v1::TensorBlob> layers_;
};

v1::Plan NewPlan() {
  v1::Plan plan;
  plan.mutable_numerics_class()->set_name(kNumericsClass);
  plan.add_pipelines();
  return plan;
}

// What one node computes, or several by these weights.
struct RankWeight {
  std::string node;
  double weight = 1;
};

void AddStage(const std::vector<RankWeight>& nodes, uint32_t first_layer, uint32_t last_layer,
              v1::Plan* plan) {
  v1::PlanStage* stage = OnlyPipeline(plan)->add_stages();
  std::vector<double> weights;
  for (const RankWeight& node : nodes) {
    weights.push_back(node.weight);
  }
  const std::vector<OutputRange> shares = SharesByWeight(weights).value();
  for (size_t i = 0; i < nodes.size(); ++i) {
    v1::PlanRank* rank = stage->add_ranks();
    rank->set_node(nodes[i].node);
    if (nodes.size() > 1) {
      rank->set_share_begin(shares[i].begin);
      rank->set_share_end(shares[i].end);
    }
  }
  stage->set_first_layer(first_layer);
  stage->set_last_layer(last_layer);
  stage->set_predicted_ms(0.2);
}

// How many workers compute each of so many stages, of which there are enough for one each.
std::vector<uint32_t> DrawGroups(const Scenario& scenario, uint32_t stages, size_t machines,
                                 Random* random) {
  std::vector<uint32_t> groups(stages, 1);
  size_t spare = machines - stages;
  const uint32_t more = scenario.ranks - 1;
  if (more == 0 || (scenario.ranks_everywhere && spare < size_t{stages} * more)) {
    return groups;
  }
  // One at least, where there are enough for it.
  const uint32_t surely = random->Below(stages);
  for (uint32_t i = 0; i < stages; ++i) {
    const uint32_t stage = (surely + i) % stages;
    if (spare >= more && (scenario.ranks_everywhere || i == 0 || random->OneIn(2))) {
      groups[stage] = scenario.ranks;
      spare -= more;
    }
  }
  return groups;
}

v1::Plan PlanOn(const Scenario& scenario, uint32_t stages, std::vector<Machine> machines,
                Random* random) {
  auto draw_machine = [&, drawn = uint32_t{0}]() mutable {
    std::swap(machines[drawn],
              machines[random->Between(drawn, static_cast<uint32_t>(machines.size()) - 1)]);
    return NodeName(machines[drawn++]);
  };
  std::vector<std::vector<RankWeight>> nodes(stages);
  for (std::vector<RankWeight>& of_stage : nodes) {
    of_stage.push_back({draw_machine()});
  }
  std::set<uint32_t> cuts = {0, scenario.layers};
  while (cuts.size() < stages + 1) {
    cuts.insert(random->Below(scenario.layers));
  }
  const std::vector<uint32_t> first_layers(cuts.begin(), cuts.end());
  const std::vector<uint32_t> groups = DrawGroups(scenario, stages, machines.size(), random);
  v1::Plan plan = NewPlan();
  for (uint32_t i = 0; i < stages; ++i) {
    while (nodes[i].size() < groups[i]) {
      nodes[i].push_back({draw_machine(), static_cast<double>(random->Between(1, 3))});
    }
    AddStage(nodes[i], first_layers[i], first_layers[i + 1] - 1, &plan);
  }
  return plan;
}

}  // namespace

std::string LayerTensor(uint32_t layer) { return "layers." + std::to_string(layer); }

std::vector<std::string> LayerKeys(uint32_t layers) {
  const SimModel model(layers);
  std::vector<std::string> keys;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const bool embeds = layer == 0;
    const bool heads = layer + 1 == layers;
    std::vector<std::string> digests;
    for (const v1::TensorBlob& tensor : model.StageTensors(layer, layer, embeds, heads)) {
      digests.push_back(tensor.sha256());
    }
    keys.push_back(LayerWeightsKey(kNumericsClass, embeds, heads, std::move(digests)));
  }
  return keys;
}

std::shared_ptr<const DeployedModel> MakeSimModel(const Scenario& scenario) {
  return std::make_shared<SimModel>(scenario.layers);
}

v1::Plan DrawPlan(const Scenario& scenario, Random* random) {
  std::vector<Machine> machines;
  for (uint32_t i = 0; i < scenario.workers; ++i) {
    machines.push_back(static_cast<Machine>(i));
  }
  return PlanOn(scenario, scenario.stages, std::move(machines), random);
}

v1::Plan DrawPlanOn(const Scenario& scenario, std::vector<Machine> machines, Random* random) {
  const auto most = std::min(scenario.stages, static_cast<uint32_t>(machines.size()));
  return PlanOn(scenario, random->Between(1, most), std::move(machines), random);
}

absl::StatusOr<v1::Plan> PlanAsked(const Scenario& scenario, const std::vector<PlannerNode>& nodes,
                                   const v1::LoadOptions& options) {
  const auto is_there = [&](const std::string& name) {
    return std::any_of(nodes.begin(), nodes.end(),
                       [&](const PlannerNode& node) { return node.name == name; });
  };
  v1::Plan plan = NewPlan();
  for (const v1::LoadOptions::PinnedLayers& pin : options.layers()) {
    std::vector<RankWeight> pinned;
    for (const v1::LoadOptions::PinnedRank& rank : pin.ranks()) {
      pinned.push_back({rank.node(), std::max<double>(1, rank.weight())});
    }
    if (pinned.empty()) pinned.push_back({pin.node()});
    for (const RankWeight& one : pinned) {
      if (!is_there(one.node)) {
        return Error(absl::StatusCode::kNotFound, "NO_NODE", "there is no node " + one.node);
      }
    }
    AddStage(pinned, pin.first_layer(), pin.last_layer(), &plan);
  }
  if (options.layers().empty()) {
    const uint32_t ranks = std::max(1u, options.ranks());
    if (nodes.size() < ranks) {
      return Error(absl::StatusCode::kFailedPrecondition, "NO_NODES", "too few nodes are there");
    }
    const auto stages = std::min(scenario.stages, static_cast<uint32_t>(nodes.size()) / ranks);
    for (uint32_t i = 0; i < stages; ++i) {
      std::vector<RankWeight> group;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        group.push_back({nodes[i * ranks + rank].name});
      }
      AddStage(group, scenario.layers * i / stages, scenario.layers * (i + 1) / stages - 1, &plan);
    }
  }
  uint32_t most = 1;  // Layers of a stage, which is what a step waits for.
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    most = std::max(most, stage.last_layer() - stage.first_layer() + 1);
  }
  plan.set_predicted_tokens_per_s(100.0 / most);
  return plan;
}

v1::Plan WithPages(v1::Plan plan, uint64_t kv_pages) {
  for (v1::PlanStage& stage : *OnlyPipeline(&plan)->mutable_stages()) {
    stage.clear_kv_pages();
    stage.add_kv_pages(kv_pages);
  }
  return plan;
}

v1::LoadOptions LoadOptionsOf(const Scenario& scenario, uint64_t kv_pages) {
  v1::LoadOptions options;
  options.set_context(scenario.context);
  options.set_kv_tokens(kv_pages * kPageTokens);
  options.set_max_batch_tokens(scenario.max_batch_tokens);
  options.set_standby(scenario.standby);
  if (scenario.ranks_everywhere) options.set_ranks(scenario.ranks);
  options.set_speculate(scenario.draft_model ? "model=guesser" : scenario.drafts ? "auto" : "off");
  options.set_recovery(scenario.moves ? v1::RECOVERY_MOVE : v1::RECOVERY_WAIT);
  return options;
}

DeploymentOptions DeploymentOptionsOf(const Scenario& scenario) {
  DeploymentOptions options;
  options.step_timeout = scenario.step_timeout;
  options.stall_timeout = scenario.step_timeout / 4;
  options.recovery_timeout = scenario.step_timeout;
  options.placement_timeout = std::chrono::seconds(6);
  options.placement_grace = milliseconds(500);
  options.placement_again = milliseconds(300);
  options.better_after = milliseconds(200);
  options.max_queued_requests = scenario.max_queued_requests;
  options.max_batch_items = scenario.max_batch_items;
  options.max_sessions = scenario.max_sessions;
  options.kv_watermark = scenario.kv_watermark;
  // Of waves: as often as it can be. Else what steps take is no concern of the scenario.
  options.inter_token_target = nanoseconds(scenario.waves ? 1 : 0);
  options.prefix_cache = scenario.prefix_cache;
  options.make_drafter = DraftersOf(scenario);
  options.load_timeout = std::chrono::seconds(10);
  options.retry = {.first = milliseconds(200), .most = milliseconds(800)};
  return options;
}

}  // namespace strata::sim
