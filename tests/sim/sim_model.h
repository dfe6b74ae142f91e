// The one model of a simulation, as the coordinator deploys it, and how the scenario wants it
// loaded.
#ifndef STRATA_TESTS_SIM_SIM_MODEL_H_
#define STRATA_TESTS_SIM_SIM_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/deployment/deployed_model.h"
#include "coordinator/deployment/deployment_options.h"
#include "coordinator/planner/planner.h"
#include "strata/v1/types.pb.h"
#include "tests/sim/network.h"
#include "tests/sim/random.h"
#include "tests/sim/scenario.h"

namespace strata::sim {

// Its tensors.
inline constexpr char kEmbedding[] = "embedding";
inline constexpr char kHead[] = "head";
std::string LayerTensor(uint32_t layer);

// The LayerWeightsKey of each of its layers.
std::vector<std::string> LayerKeys(uint32_t layers);

std::shared_ptr<const DeployedModel> MakeSimModel(const Scenario& scenario);

// Any stages of the scenario's number on any of its workers.
v1::Plan DrawPlan(const Scenario& scenario, Random* random);
// The same over some of these machines, in as many stages or fewer; there is one at least.
v1::Plan DrawPlanOn(const Scenario& scenario, std::vector<Machine> machines, Random* random);
// What the planner would make of these options over these nodes: the layers that are pinned, or
// else all in as many stages as there may be, of about one size.
absl::StatusOr<v1::Plan> PlanAsked(const Scenario& scenario, const std::vector<PlannerNode>& nodes,
                                   const v1::LoadOptions& options);
// The same stages with so many pages each.
v1::Plan WithPages(v1::Plan plan, uint64_t kv_pages);

v1::LoadOptions LoadOptionsOf(const Scenario& scenario, uint64_t kv_pages);
DeploymentOptions DeploymentOptionsOf(const Scenario& scenario);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_MODEL_H_
