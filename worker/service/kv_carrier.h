// Takes over the KV of the stages whose layers another is to have.
#ifndef STRATA_WORKER_SERVICE_KV_CARRIER_H_
#define STRATA_WORKER_SERVICE_KV_CARRIER_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "worker/node/stage_epochs.h"
#include "worker/runner/carry_rounds.h"
#include "worker/service/compute_queue.h"
#include "worker/service/frame_link.h"
#include "worker/service/step_log.h"
#include "worker/weights/cancellation.h"

namespace strata {

// One thread at a time, which waits.
class KvCarrier {
 public:
  // Of the stage at `place`, whose runner `queue` has. All outlive it.
  KvCarrier(StepPlace place, ComputeQueue* queue, LinkDialer* dialer, const Clock* clock)
      : place_(std::move(place)), queue_(queue), dialer_(dialer), clock_(clock) {}

  // Does what FenceAct::kCarry asks for; whether all of it is there.
  bool Carry(const FenceStep& step, Cancellation* cancel) const;

 private:
  // One request, of a source of the step's. What is there by then.
  absl::StatusOr<TakenKv> Ask(const FenceStep& step, uint32_t source, uint32_t round,
                              bool pages_only, nanoseconds timeout, Cancellation* cancel) const;
  TakenKv Taken() const;

  const StepPlace place_;
  ComputeQueue* const queue_;
  LinkDialer* const dialer_;
  const Clock* const clock_;
};

}  // namespace strata

#endif  // STRATA_WORKER_SERVICE_KV_CARRIER_H_
