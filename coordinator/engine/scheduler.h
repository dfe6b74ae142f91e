// What goes into the next step: a pure function of a snapshot.
#ifndef STRATA_COORDINATOR_ENGINE_SCHEDULER_H_
#define STRATA_COORDINATOR_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <vector>

namespace strata {

// A running session with known tokens that no step carries yet.
struct ReadySession {
  uint64_t id = 0;
  uint32_t pending = 0;       // Tokens known, and not sent. > 0.
  bool decoding = false;      // Its one pending token is the newest generated one.
  bool wants_logits = false;  // Its rows of logits travel back.
  uint64_t last_step = 0;     // Of its newest item, for turns.
};

struct SchedulerSnapshot {
  std::vector<ReadySession> ready;  // In order of admission.
  uint32_t decoding = 0;            // Sessions that decode, in flight ones included.
  uint32_t stages = 1;
  uint32_t steps_in_flight = 0;
  uint32_t token_budget = 0;     // Rows of the step. > 0.
  uint32_t max_items = 0;        // > 0.
  uint32_t max_logits_rows = 0;  // > 0.
};

struct ScheduledItem {
  uint64_t id = 0;
  uint32_t tokens = 0;
};

// Prompts are not cut finer than this to fill the pipeline.
inline constexpr uint32_t kMinPrefillRows = 64;

// The items of the next step, decode items first, then prefill chunks in order of admission; empty
// when it is better to wait for a result. As many micro-batches as stages keep every stage at work
// (1F1B's bound: m >= sum of stage times / slowest stage time), so sessions spread over that many
// steps; the one step in flight beyond that only hides the way back and is not worth splitting
// batches for.
std::vector<ScheduledItem> ScheduleStep(const SchedulerSnapshot& snapshot);

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_SCHEDULER_H_
