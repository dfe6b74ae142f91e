#include "tests/sim/sim_model.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "common/plan.h"
#include "tests/sim/cluster.h"
#include "tests/sim/exact_model.h"

namespace strata::sim {
namespace {

class SimModel : public DeployedModel {
 public:
  explicit SimModel(uint32_t layers) : spec_(ExactModelSpec(layers)) { name = "exact"; }

  const ModelSpec& spec() const override { return spec_; }
  const std::string& config_json() const override { return config_json_; }
  const std::string& weights_digest() const override { return weights_digest_; }
  std::vector<v1::TensorBlob> StageTensors(uint32_t, uint32_t, bool, bool) const override {
    return {};
  }

 private:
  const ModelSpec spec_;
  const std::string config_json_ = "{}";
  const std::string weights_digest_ = kWeightsDigest;
};

v1::Plan PlanOn(const Scenario& scenario, uint32_t stages, std::vector<Machine> machines,
                Random* random) {
  for (uint32_t i = 0; i < stages; ++i) {
    std::swap(machines[i],
              machines[random->Between(i, static_cast<uint32_t>(machines.size()) - 1)]);
  }
  std::set<uint32_t> cuts = {0, scenario.layers};
  while (cuts.size() < stages + 1) {
    cuts.insert(random->Below(scenario.layers));
  }
  const std::vector<uint32_t> first_layers(cuts.begin(), cuts.end());
  v1::Plan plan;
  plan.mutable_numerics_class()->set_name(kNumericsClass);
  v1::PlanPipeline* pipeline = plan.add_pipelines();
  for (uint32_t i = 0; i < stages; ++i) {
    v1::PlanStage* stage = pipeline->add_stages();
    stage->add_ranks()->set_node(NodeName(machines[i]));
    stage->set_first_layer(first_layers[i]);
    stage->set_last_layer(first_layers[i + 1] - 1);
    stage->set_predicted_ms(0.2);
  }
  return plan;
}

}  // namespace

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
  options.load_timeout = std::chrono::seconds(10);
  options.retry = {.first = milliseconds(200), .most = milliseconds(800)};
  return options;
}

}  // namespace strata::sim
