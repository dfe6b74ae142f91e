// A large cluster under load, in simulated time: many engines with their schedulers and ledgers
// over pipelines that take the time that was predicted for them, while workers are lost, others
// take their layers, and requests are computed again there.
#ifndef STRATA_TESTS_SIM_SCALE_H_
#define STRATA_TESTS_SIM_SCALE_H_

#include <cstdint>

namespace strata::sim {

struct ScaleOptions {
  uint64_t seed = 1;
  uint32_t workers = 1000;  // In pipelines of kScaleStages, and a few that are spare.
  uint32_t requests = 100000;
  double losses_percent = 5;  // Of the workers, each simulated minute; each is back after a while.
};
inline constexpr uint32_t kScaleStages = 4;

// Prints what it took and what was served; false, with a line that says why, unless every request
// got all its tokens, each once and in order, no stage was asked to hold more than it has, and
// pages were live on 80 % of each pool on average while anybody waited for some and nobody for a
// worker.
bool RunScale(const ScaleOptions& options);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SCALE_H_
