// Sends a workload: as many clients that wait for their answers (closed loop), or requests that
// come when they come (open loop).
#ifndef STRATA_CLI_BENCH_LOAD_LOOP_H_
#define STRATA_CLI_BENCH_LOAD_LOOP_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "cli/bench/report.h"
#include "cli/bench/target.h"
#include "cli/bench/workload.h"
#include "common/clock.h"

namespace strata::cli {

struct LoadOptions {
  // At a time. In a closed loop there are always as many; in an open one (the workload has a
  // rate) a request that comes while there are waits, which counts as its latency.
  uint32_t clients = 1;
  nanoseconds ramp{};     // In a closed loop, the clients begin evenly over so long.
  uint32_t requests = 1;  // At most.
  // Requests begin for so long; then those in flight end.
  std::optional<nanoseconds> duration;
  LatencyTargets targets;
  OnAnswer on_answer = {};  // May be empty.
};

struct LoadProgress {
  nanoseconds elapsed{};
  uint32_t begun = 0;
  uint32_t ended = 0;
  uint32_t failed = 0;
  uint64_t tokens = 0;
};

// Returns when every request has ended. `cancelled` is asked ten times a second; once it is true,
// no request begins and those in flight are cancelled. `on_progress` comes as often, and at the
// end.
LoadReport RunLoad(const Workload& workload, const LoadOptions& options, const Clock& clock,
                   LoadTarget* target, const std::function<bool()>& cancelled,
                   const std::function<void(const LoadProgress&)>& on_progress);

}  // namespace strata::cli

#endif  // STRATA_CLI_BENCH_LOAD_LOOP_H_
