// The steps of the pipeline's epoch: their numbers, those that are in flight, and when the pipeline
// gave its last sign of life.
#ifndef STRATA_COORDINATOR_ENGINE_STEPS_IN_FLIGHT_H_
#define STRATA_COORDINATOR_ENGINE_STEPS_IN_FLIGHT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "common/clock.h"
#include "coordinator/engine/result_check.h"

namespace strata {

// One thread.
class StepsInFlight {
 public:
  // The first step of an epoch is the next one, and none is in flight.
  void BeginEpoch();
  // None is in flight any more: they are lost.
  void Clear() { steps_.clear(); }

  // Numbers the next step.
  SentStep Begin();
  // It was sent.
  void Add(SentStep sent, TimePoint now);
  // The result of the oldest one came, and is what it must be: the newest committed step.
  SentStep Commit(TimePoint now);

  // In the order in which they were sent.
  const std::deque<SentStep>& steps() const { return steps_; }
  size_t size() const { return steps_.size(); }
  bool empty() const { return steps_.empty(); }
  const SentStep& oldest() const { return steps_.front(); }
  // The newest committed one of the epoch; 0: none.
  uint64_t committed() const { return committed_; }
  // The last result, or dispatch into an idle pipeline; `now` while none is in flight.
  TimePoint LastSign(TimePoint now) const { return empty() ? now : last_sign_; }
  // The one who waits stood still until now: what came meanwhile was not heard.
  void NoteSign(TimePoint now) { last_sign_ = now; }
  // When they are given up, `timeout` after that; none: no step is in flight.
  std::optional<TimePoint> GivenUpAt(nanoseconds timeout) const {
    return empty() ? std::nullopt : std::optional(last_sign_ + timeout);
  }
  // Sessions that they carry, and how far into each they go.
  std::map<uint64_t, uint32_t> Reach() const;

 private:
  std::deque<SentStep> steps_;
  uint64_t next_ = 1;
  uint64_t committed_ = 0;
  TimePoint last_sign_{0};
};

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_STEPS_IN_FLIGHT_H_
