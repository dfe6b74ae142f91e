// The one model of a simulation, as the coordinator deploys it, and how the scenario wants it
// loaded.
#ifndef STRATA_TESTS_SIM_SIM_MODEL_H_
#define STRATA_TESTS_SIM_SIM_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "coordinator/deployment/deployed_model.h"
#include "coordinator/deployment/deployment_options.h"
#include "strata/v1/types.pb.h"
#include "tests/sim/network.h"
#include "tests/sim/random.h"
#include "tests/sim/scenario.h"

namespace strata::sim {

std::shared_ptr<const DeployedModel> MakeSimModel(const Scenario& scenario);

// Any stages of the scenario's number on any of its workers.
v1::Plan DrawPlan(const Scenario& scenario, Random* random);
// The same over some of these machines, in as many stages or fewer; there is one at least.
v1::Plan DrawPlanOn(const Scenario& scenario, std::vector<Machine> machines, Random* random);
// The same stages with so many pages each.
v1::Plan WithPages(v1::Plan plan, uint64_t kv_pages);

v1::LoadOptions LoadOptionsOf(const Scenario& scenario, uint64_t kv_pages);
DeploymentOptions DeploymentOptionsOf(const Scenario& scenario);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_MODEL_H_
