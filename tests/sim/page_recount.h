// The ledger's pages against what it was not asked: the lengths of the sessions that run, and the
// stages' own pools.
#ifndef STRATA_TESTS_SIM_PAGE_RECOUNT_H_
#define STRATA_TESTS_SIM_PAGE_RECOUNT_H_

#include <cstdint>
#include <string>

#include "coordinator/engine/engine.h"

namespace strata::sim {

// Of a model of one full KV group: live pages are no more than its running sessions may have.
// Empty, or what is wrong.
std::string RecountLive(const EngineSnapshot& snapshot);

// All that a stage holds is live, cached or fenced: what is sent is within what was promised.
// Empty, or what is wrong.
std::string RecountStage(const EngineSnapshot& snapshot, uint32_t stage, uint64_t pages_in_use);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_PAGE_RECOUNT_H_
