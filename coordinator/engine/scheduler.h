// What goes into the next step: a pure function of a snapshot.
#ifndef STRATA_COORDINATOR_ENGINE_SCHEDULER_H_
#define STRATA_COORDINATOR_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "coordinator/engine/stage_cost.h"

namespace strata {

// A running session with known tokens that no step carries yet.
struct ReadySession {
  uint64_t id = 0;
  uint32_t pending = 0;         // Tokens known, and not sent. > 0.
  uint32_t position = 0;        // Tokens before them.
  bool decoding = false;        // Its one pending token is the newest generated one.
  bool wants_logits = false;    // Its rows of logits travel back.
  uint64_t last_step = 0;       // Of its newest item, for turns.
  int32_t priority = 0;         // Prompts of higher ones go first.
  uint32_t tenant = 0;          // Index into `served`.
  bool spreads = true;          // Its tokens may be in a wave.
  uint32_t drafts = 0;          // Of one that decodes: drafted tokens that its item may have too,
  double draft_chance = 0;      // and that one is right, if those before it are.
  double draft_won = 0;         // See DraftOffer::won.
  uint32_t certain_drafts = 0;  // The first so many of them are right.
};

// A session whose known tokens are all in flight, and of which more was guessed.
struct AheadSession {
  uint64_t id = 0;
  uint32_t guesses = 0;     // In flight behind what is known.
  uint32_t drafts = 0;      // Guessed behind the token that follows them.
  double draft_chance = 0;  // That a guess is right, if those before it are.
  uint32_t position = 0;    // Tokens before what would be sent.
};

struct SchedulerSnapshot {
  std::vector<ReadySession> ready;  // The more important ones first.
  // The one that decodes, where it may have a step ahead of the result of the one before.
  std::optional<AheadSession> ahead;
  std::vector<uint64_t> served;  // By tenant: rows of prompts computed for it so far.
  uint32_t decoding = 0;         // Sessions that decode, in flight ones included.
  double decoding_attended = 0;  // Positions that the next token of each attends.
  // Those of them whose masks, or guesses of a draft model, will be there soon, and until when that
  // is expected of the first.
  uint32_t masks_awaited = 0;
  std::optional<TimePoint> masks_awaited_until;
  uint32_t stages = 1;
  uint32_t steps_in_flight = 0;
  uint32_t token_budget = 0;       // Rows of the step. > 0.
  uint32_t max_items = 0;          // > 0.
  uint32_t max_logits_rows = 0;    // > 0.
  uint64_t last_decode_step = 0;   // The newest that had decode items; 0: none.
  uint64_t last_prefill_step = 0;  // The newest that had rows of prompts; 0: none.
  std::vector<StageCost> costs;    // By stage, of steps beside others; empty: not known.
  // Of steps that are alone in the pipeline; empty: as those beside others.
  std::vector<StageCost> costs_alone;
  bool together = false;      // The newest step with decode items had all there were.
  double hop_ms = 0;          // From stage to stage, the first and last from the coordinator.
  double most_step_ms = 0;    // What a step may take on a stage; 0: no limit.
  double inter_token_ms = 0;  // See StepPace; 0: no limit.
  // Waves (layer_waves.h): the layers of each stage (empty: there are none), the most rows of one;
  // of those under way rows and items, the newest one's slices, and whether another one may begin.
  std::vector<uint32_t> layers;
  uint32_t max_wave_rows = 0;
  uint32_t wave_rows = 0;
  uint32_t wave_items = 0;
  uint32_t wave_slices = 0;
  bool wave_may_begin = false;
};

struct ScheduledItem {
  uint64_t id = 0;
  uint32_t tokens = 0;
  uint32_t drafts = 0;  // Behind them.
  bool ahead = false;   // Its one token is a guess too.
};

// What becomes of the waves under way.
enum class WaveMove {
  kNone,
  kOn,      // Each stage computes its next slice.
  kFinish,  // And all of what is left.
};

struct ScheduledStep {
  std::vector<ScheduledItem> items;
  uint32_t slices = 0;  // > 0: the items are a wave, in so many slices on each stage.
  WaveMove waves = WaveMove::kNone;
  double slowdown = 1;  // How much longer the drafts let a cycle of steps take.
  bool empty() const { return items.empty() && waves == WaveMove::kNone; }
};

// A step ahead that comes to nothing takes time from the right one behind it only where it is still
// at the first stage, which by then had the time of a step for it.
inline constexpr double kLeastAheadChance = 0.3;

// The next step; empty when it is better to wait for a result.
//
// Decode items come first: those that waited longest, no more than ceil(decoding / micro-batches)
// (StepPace), and of those with long contexts no more than makes an even share of the time. Then
// parts of prompts: of the highest priority, of the tenant that was served least, of the oldest
// session; as many rows as fit the budget and the time. A prompt always goes on, by one row at
// least, and where decode items would fill a step an eighth of it is left for prompts. Where
// prompts are apart (StepPace), a step has all decode items or parts of prompts, in turn; the
// latter may be waves, one of which begins when the one before it has left the first stage. Where
// they are not apart any more, waves are finished before other prompts go on.
//
// What room is left then is for drafts of the decode items, as many as pay (draft_length.h).
//
// Where one session decodes and nobody else has anything to compute, all stages but one are idle.
// It then has a step more for each of them, ahead of the results of those before: on the guess that
// all in flight is right, where that is likely enough (kLeastAheadChance).
ScheduledStep ScheduleStep(const SchedulerSnapshot& snapshot);

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_SCHEDULER_H_
