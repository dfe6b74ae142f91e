// Drafters of the simulation, which know what requests must be answered with, and lie as often as
// the scenario says.
#ifndef STRATA_TESTS_SIM_SIM_DRAFTS_H_
#define STRATA_TESTS_SIM_SIM_DRAFTS_H_

#include <cstdint>
#include <vector>

#include "coordinator/engine/draft_model.h"
#include "coordinator/engine/drafter.h"
#include "tests/sim/scenario.h"

namespace strata::sim {

// For DeploymentOptions::make_drafter. Never drafts a token that workers are made to fail at.
MakeDrafter DraftersOf(const Scenario& scenario);

// What a draft model says to it. The same care.
std::vector<uint32_t> GuessesFor(const Scenario& scenario, const GuessRequest& request);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_DRAFTS_H_
