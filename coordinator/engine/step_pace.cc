#include "coordinator/engine/step_pace.h"

#include <algorithm>
#include <limits>

namespace strata {
namespace {

constexpr double kWorthIt = 0.97;
// What steps of few rows have to win by, and to take at least: they cost more than their stages'
// time.
constexpr double kFinerIsDearer = 1.05;
constexpr double kLeastPartMs = 5;

enum class Guess { kExpected, kHopeful };

// What the decode items of one of `batches` micro-batches ask.
StepWork DecodeWork(const SchedulerSnapshot& snapshot, uint32_t batches) {
  const uint32_t rows = (snapshot.decoding + batches - 1) / batches;
  return {rows, snapshot.decoding_attended * rows / std::max(1u, snapshot.decoding)};
}

// How long it takes until each session has its next token, with `batches` micro-batches. The steps
// of one alone meet no other.
double CycleMs(const SchedulerSnapshot& snapshot, uint32_t batches, Guess guess) {
  const bool alone = batches == 1 && !snapshot.costs_alone.empty();
  const StepWork work = DecodeWork(snapshot, batches);
  double sum = (snapshot.stages + 1) * snapshot.hop_ms;
  double slowest = 0;
  for (const StageCost& cost : alone ? snapshot.costs_alone : snapshot.costs) {
    const double ms = guess == Guess::kHopeful ? cost.HopefulMs(work) : cost.Ms(work);
    sum += ms;
    slowest = std::max(slowest, ms);
  }
  return std::max(batches * slowest, sum);
}

// Rows of a prompt at `position` that a step may have beside `work` in `limit_ms`.
uint32_t RowsInTime(const SchedulerSnapshot& snapshot, const StepWork& work, uint32_t position,
                    double limit_ms) {
  uint32_t fits = 0;
  for (uint32_t most = snapshot.token_budget; fits < most;) {
    const uint32_t rows = fits + (most - fits + 1) / 2;
    if (SlowestMs(snapshot, {work.rows + rows, work.attended + Attended(position, rows)}) <=
        limit_ms) {
      fits = rows;
    } else {
      most = rows - 1;
    }
  }
  return fits;
}

// Shares a cycle of `target_ms` between decode items and prompts; `next` is one of those, or null.
void ShareCycle(const SchedulerSnapshot& snapshot, double target_ms, const ReadySession* next,
                StepPace* pace) {
  const double hops = (snapshot.stages + 1) * snapshot.hop_ms;
  const double most_ms = pace->step_ms;
  pace->step_ms = std::min(
      {most_ms, target_ms / pace->slots, std::max(0.0, target_ms - hops) / snapshot.stages});
  if (next == nullptr || snapshot.stages == 1 ||
      snapshot.decoding > std::min(snapshot.max_items, snapshot.token_budget)) {
    return;
  }
  const uint32_t others = snapshot.stages - 1;
  const StepWork all = DecodeWork(snapshot, 1);
  const double left_ms = target_ms - hops - SlowestMs(snapshot, all);
  const double apart_ms = std::min(most_ms, std::max(0.0, left_ms) / others);
  const uint64_t apart = uint64_t{others} * RowsInTime(snapshot, {}, next->position, apart_ms);
  const uint64_t even =
      uint64_t{pace->batches} *
          RowsInTime(snapshot, DecodeWork(snapshot, pace->batches), next->position, pace->step_ms) +
      uint64_t{pace->slots - pace->batches} *
          RowsInTime(snapshot, {}, next->position, pace->step_ms);
  const auto least = static_cast<double>(even) * (snapshot.together ? kWorthIt : 1 / kWorthIt);
  if (apart > 0 && static_cast<double>(apart) > least) {
    pace->batches = 1;
    pace->prompt_steps = others;
    pace->slots = snapshot.stages + 1;
    pace->step_ms = apart_ms;
  }
}

}  // namespace

double SlowestMs(const SchedulerSnapshot& snapshot, const StepWork& work) {
  double ms = 0;
  for (const StageCost& cost : snapshot.costs) {
    ms = std::max(ms, cost.Ms(work));
  }
  return ms;
}

StepPace PaceOf(const SchedulerSnapshot& snapshot) {
  StepPace pace;
  pace.step_ms =
      snapshot.most_step_ms > 0 ? snapshot.most_step_ms : std::numeric_limits<double>::infinity();
  if (snapshot.decoding == 0) {
    pace.batches = pace.slots = snapshot.stages;
    return pace;
  }
  const uint32_t most = std::min(snapshot.decoding, snapshot.stages + 1);
  const uint32_t usual = std::min(snapshot.decoding, snapshot.stages);
  pace.batches = usual;
  const double usual_ms = CycleMs(snapshot, usual, Guess::kHopeful);
  double hopeful_ms = usual_ms;
  double together_ms = usual_ms;
  for (uint32_t batches = 1; batches <= most; ++batches) {
    const double ms = CycleMs(snapshot, batches, Guess::kHopeful);
    together_ms = batches == 1 ? ms : together_ms;
    if (ms < hopeful_ms && ms < kWorthIt * usual_ms) {
      hopeful_ms = ms;
      pace.batches = batches;
    }
  }
  if (snapshot.together && hopeful_ms > kWorthIt * together_ms) {
    pace.batches = 1;
  }
  const double cycle_ms = std::min(CycleMs(snapshot, pace.batches, Guess::kExpected),
                                   CycleMs(snapshot, usual, Guess::kExpected));
  const auto prompt = std::find_if(snapshot.ready.begin(), snapshot.ready.end(),
                                   [](const ReadySession& session) { return !session.decoding; });
  // Prompts fill the stages that the micro-batches leave idle.
  const bool prompts = prompt != snapshot.ready.end();
  pace.slots = prompts ? std::max(pace.batches, snapshot.stages) : pace.batches;
  if (snapshot.inter_token_ms > 0 && !snapshot.costs.empty()) {
    const double target_ms = std::max(snapshot.inter_token_ms, kMostSlowdown * cycle_ms);
    ShareCycle(snapshot, target_ms, prompts ? &*prompt : nullptr, &pace);
  }
  return pace;
}

uint32_t RowsToFill(const SchedulerSnapshot& snapshot, const StepWork& prompts) {
  if (snapshot.stages == 1 || snapshot.costs.empty() || prompts.rows == 0) {
    return std::numeric_limits<uint32_t>::max();
  }
  const double attended_per_row = prompts.attended / prompts.rows;
  // Of long ones it could win little: what the pipeline takes to fill and drain.
  const bool may_be_fine = snapshot.decoding == 0 && prompts.rows <= kShortPromptRows;
  const uint32_t least = may_be_fine ? kLeastPrefillRows : kMinPrefillRows;
  uint32_t best = least;
  double best_ms = std::numeric_limits<double>::infinity();
  for (uint32_t rows = least;; rows *= 2) {
    const uint32_t step_rows = std::min({rows, snapshot.token_budget, prompts.rows});
    const double steps = static_cast<double>(prompts.rows) / step_rows + snapshot.stages - 1;
    const double step_ms =
        SlowestMs(snapshot, {step_rows, attended_per_row * static_cast<double>(step_rows)});
    const bool fine = rows < kMinPrefillRows && step_rows < prompts.rows;
    const double ms = steps * (snapshot.hop_ms + step_ms) * (fine ? kFinerIsDearer : 1);
    if (ms < best_ms && (!fine || step_ms >= kLeastPartMs)) {
      best_ms = ms;
      best = rows;
    }
    if (step_rows < rows) {
      return best;
    }
  }
}

}  // namespace strata
