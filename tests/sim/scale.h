// A large cluster under load, in simulated time: many engines with their schedulers and ledgers
// over pipelines that take the time that was predicted for them.
#ifndef STRATA_TESTS_SIM_SCALE_H_
#define STRATA_TESTS_SIM_SCALE_H_

#include <cstdint>

namespace strata::sim {

struct ScaleOptions {
  uint64_t seed = 1;
  uint32_t workers = 1000;  // In pipelines of kScaleStages.
  uint32_t requests = 100000;
};
inline constexpr uint32_t kScaleStages = 4;

// Prints what it took and what was served; false, with a line that says why, unless every request
// got all its tokens, no stage was asked to hold more than it has, and pages were live on 80 % of
// each pool on average while anybody waited for some.
bool RunScale(const ScaleOptions& options);

}  // namespace strata::sim

#endif  // STRATA_TESTS_SIM_SCALE_H_
