// Drafters of the simulation, which know what requests must be answered with, and lie as often as
// the scenario says.
#ifndef STRATA_TESTS_SIM_SIM_DRAFTS_H_
#define STRATA_TESTS_SIM_SIM_DRAFTS_H_

#include "coordinator/engine/drafter.h"
#include "tests/sim/scenario.h"

namespace strata::sim {

// For DeploymentOptions::make_drafter. Never drafts a token that workers are made to fail at.
MakeDrafter DraftersOf(const Scenario& scenario);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIM_DRAFTS_H_
