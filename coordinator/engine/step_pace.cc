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

// How long it takes until each session has its next token, with `batches` micro-batches. The steps
// of one alone meet no other.
double CycleMs(const SchedulerSnapshot& snapshot, uint32_t batches, Guess guess) {
  const bool alone = batches == 1 && !snapshot.costs_alone.empty();
  StepWork work;
  work.rows = (snapshot.decoding + batches - 1) / batches;
  work.attended = snapshot.decoding_attended * work.rows / std::max(1u, snapshot.decoding);
  double sum = (snapshot.stages + 1) * snapshot.hop_ms;
  double slowest = 0;
  for (const StageCost& cost : alone ? snapshot.costs_alone : snapshot.costs) {
    const double ms = guess == Guess::kHopeful ? cost.HopefulMs(work) : cost.Ms(work);
    sum += ms;
    slowest = std::max(slowest, ms);
  }
  return std::max(batches * slowest, sum);
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
  const double cycle_ms = CycleMs(snapshot, pace.batches, Guess::kExpected);
  const bool prompts = std::any_of(snapshot.ready.begin(), snapshot.ready.end(),
                                   [](const ReadySession& session) { return !session.decoding; });
  // Prompts fill the stages that the micro-batches leave idle.
  pace.slots = prompts ? std::max(pace.batches, snapshot.stages) : pace.batches;
  if (snapshot.inter_token_ms > 0 && !snapshot.costs.empty()) {
    const double target = std::max(snapshot.inter_token_ms, kMostSlowdown * cycle_ms);
    const double hops = (snapshot.stages + 1) * snapshot.hop_ms;
    pace.step_ms = std::min(
        {pace.step_ms, target / pace.slots, std::max(0.0, target - hops) / snapshot.stages});
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
