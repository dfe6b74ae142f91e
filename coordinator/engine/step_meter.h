// What each stage did and what went over the links, counted for people who look at it. Decides
// nothing: see step_timing.h for what does.
#ifndef STRATA_COORDINATOR_ENGINE_STEP_METER_H_
#define STRATA_COORDINATOR_ENGINE_STEP_METER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/duration_counts.h"
#include "strata/v1/shard.pb.h"

namespace strata {

// Where the time of a step went: the three are all of it, from when it was sent to its result.
struct StepTimes {
  nanoseconds computed{0};
  nanoseconds waited{0};  // At stages, for steps before it.
  nanoseconds hops{0};    // Between stages, and from and to the coordinator.

  StepTimes& operator+=(const StepTimes& other) {
    computed += other.computed;
    waited += other.waited;
    hops += other.hops;
    return *this;
  }
};

struct StageCounters {
  uint64_t steps = 0;  // Committed ones, as all here.
  uint64_t rows = 0;
  nanoseconds computed{0};  // Of all steps.
  nanoseconds waited{0};    // Frames, from their arrival until they were computed.
  // Without computing while steps were under way.
  nanoseconds bubble{0};
  uint64_t received_bytes = 0;  // Frames, header and payload.
  uint64_t sent_bytes = 0;
  DurationCounts step_time;  // Computing one step that has items.
};

struct PipelineCounters {
  std::vector<StageCounters> stages;
  nanoseconds busy{0};  // There were steps under way.
  DurationCounts hops;  // Of a step, on all links together.
};

// One thread.
class StepMeter {
 public:
  explicit StepMeter(size_t stages) { counters_.stages.resize(stages); }

  // A step was sent while none was under way.
  void Begin(TimePoint now) { busy_since_ = now; }

  // A step with `rows` that no step before it had was committed `took` after it was sent; its
  // result was a frame of `result_bytes`. `computes`: it had items. `said` is what each stage says
  // of it, in their order; times that are none count as 0. Where its time went.
  StepTimes Commit(uint32_t rows, bool computes,
                   const google::protobuf::RepeatedPtrField<v1::StageKv>& said,
                   uint64_t result_bytes, nanoseconds took, TimePoint now);

  const PipelineCounters& counters() const { return counters_; }

 private:
  PipelineCounters counters_;
  TimePoint busy_since_{0};
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_STEP_METER_H_
