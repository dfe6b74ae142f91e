// Makes a failing scenario small: fewer faults and requests, as long as it still fails.
#ifndef STRATA_TESTS_SIM_SHRINK_H_
#define STRATA_TESTS_SIM_SHRINK_H_

#include <functional>

#include "tests/sim/scenario.h"

namespace strata::sim {

// `fails` says whether a part of the scenario still fails; the whole does. Asks at most `budget`
// times.
Part Shrink(const Scenario& scenario, const std::function<bool(const Part&)>& fails, int budget);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SHRINK_H_
