#include "coordinator/engine/step_meter.h"

#include <algorithm>

#include "common/check.h"
#include "common/limits.h"

namespace strata {
namespace {

// Nothing that a worker says makes a counter jump by more than a step can take.
nanoseconds Sane(double ms, nanoseconds took) {
  if (!(ms > 0)) {
    return nanoseconds(0);
  }
  return ms >= ToMs(took) ? took : nanoseconds(static_cast<int64_t>(ms * 1e6));
}

uint64_t FrameBytes(const v1::StageKv& said) {
  return std::min<uint64_t>(said.received_bytes(), kMaxFrameBytes);
}

double Seconds(nanoseconds time) { return ToMs(time) / 1e3; }

}  // namespace

StepTimes StepMeter::Commit(uint32_t rows, bool computes,
                            const google::protobuf::RepeatedPtrField<v1::StageKv>& said,
                            uint64_t result_bytes, nanoseconds took, TimePoint now) {
  STRATA_CHECK(said.size() == static_cast<int>(counters_.stages.size()));
  counters_.busy += now - busy_since_;
  busy_since_ = now;
  StepTimes times;
  for (int i = 0; i < said.size(); ++i) {
    StageCounters& stage = counters_.stages[static_cast<size_t>(i)];
    const nanoseconds computed = Sane(said[i].compute_ms(), took);
    const nanoseconds waited = Sane(said[i].wait_ms(), took);
    ++stage.steps;
    stage.rows += rows;
    stage.computed += computed;
    stage.waited += waited;
    stage.received_bytes += FrameBytes(said[i]);
    stage.sent_bytes += i + 1 < said.size() ? FrameBytes(said[i + 1]) : result_bytes;
    if (computes) {
      stage.step_time.Add(Seconds(computed));
    }
    // A stage may be ahead of the results: what it computed of steps under way is not known yet.
    stage.bubble = std::max(stage.bubble, counters_.busy - stage.computed);
    times.computed += computed;
    times.waited += waited;
  }
  times.hops = std::max(nanoseconds(0), took - times.computed - times.waited);
  counters_.hops.Add(Seconds(times.hops));
  return times;
}

}  // namespace strata
