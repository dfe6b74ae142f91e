// One stage over ranks of several workers, with faults drawn from a seed: the code that ships, its
// models small, its network, clock and turns simulated.
#ifndef STRATA_TESTS_SIM_RANKS_RANK_SIMULATION_H_
#define STRATA_TESTS_SIM_RANKS_RANK_SIMULATION_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace strata::sim {

enum class RankFault {
  kKill,     // A rank's process dies.
  kStall,    // Nothing comes to a rank or goes out, for less than others wait, or for more.
  kDamage,   // A bit of what comes to a rank is another.
  kFail,     // A rank's device fails in a call.
  kBehind,   // A rank gathers what it had in the step before.
  kStop,     // A rank is told to stop, as when its stage is unloaded.
  kSilence,  // The leader has no call for long, and says that it is there.
};
inline constexpr size_t kRankFaults = 7;
const char* NameOf(RankFault fault);

struct RankCounts {
  std::array<uint64_t, kRankFaults> struck = {};
  uint64_t steps = 0;   // Of which all logits were compared.
  uint64_t broken = 0;  // Steps that ranks failed.
  uint64_t joined = 0;  // Epochs of ranks.
};

struct RankRun {
  std::optional<std::string> finding;
  RankCounts counts;
};

// `tell`, or null, hears what happens.
RankRun SimulateRanks(uint64_t seed, const std::function<void(const std::string&)>& tell);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_RANKS_RANK_SIMULATION_H_
