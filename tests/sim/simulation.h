// One run of one scenario, on one thread: coordinator core, worker cores and clients over simulated
// links and time.
#ifndef STRATA_TESTS_SIM_SIMULATION_H_
#define STRATA_TESTS_SIM_SIMULATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "tests/sim/counts.h"
#include "tests/sim/scenario.h"

namespace strata::sim {

struct Outcome {
  std::optional<std::string> finding;  // What must never be, and was.
  Counts counts;
  uint64_t events = 0;
  std::string story;  // If it was asked for.
};

// The same scenario gives the same outcome, always. `tell`: with its story.
Outcome Simulate(const Scenario& scenario, bool tell);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SIMULATION_H_
