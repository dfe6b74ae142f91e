#include "coordinator/engine/step_pace.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace strata {
namespace {

constexpr double kWorthIt = 0.97;
// What steps of few rows have to win by, and to take at least: they cost more than their stages'
// time.
constexpr double kFinerIsDearer = 1.05;
constexpr double kLeastPartMs = 5;
// The standard deviation of what is seen all the time has no part in hope.
constexpr double kUsualDoubt = 0.1;

// More rows than that are hardly cheaper each.
constexpr uint32_t kMostWaveRows = 64;
constexpr uint32_t kMostSlices = 8;
// What another number of slices has to win by: layers do not divide evenly, and answers come as
// unevenly.
constexpr double kMoreSlices = 0.9;

// The last is hopeful of what was not seen for long alone.
enum class Guess { kExpected, kHopeful, kHopefulOfNew };

// What the decode items of one of `batches` micro-batches ask.
StepWork DecodeWork(const SchedulerSnapshot& snapshot, uint32_t batches) {
  const uint32_t rows = (snapshot.decoding + batches - 1) / batches;
  return {rows, snapshot.decoding_attended * rows / std::max(1u, snapshot.decoding)};
}

double HopsMs(const SchedulerSnapshot& snapshot) { return (snapshot.stages + 1) * snapshot.hop_ms; }

// The most that ms_of says of a stage.
template <typename MsOf>
double Slowest(const SchedulerSnapshot& snapshot, const MsOf& ms_of) {
  double ms = 0;
  for (const StageCost& cost : snapshot.costs) {
    ms = std::max(ms, ms_of(cost));
  }
  return ms;
}

// How long it takes until each session has its next token, with `batches` micro-batches of this
// work. The steps of one alone meet no other.
double CycleMs(const SchedulerSnapshot& snapshot, uint32_t batches, const StepWork& work,
               Guess guess) {
  const bool alone = batches == 1 && !snapshot.costs_alone.empty();
  double sum = HopsMs(snapshot);
  double slowest = 0;
  for (const StageCost& cost : alone ? snapshot.costs_alone : snapshot.costs) {
    const double ms = guess == Guess::kExpected  ? cost.Ms(work)
                      : guess == Guess::kHopeful ? cost.HopefulMs(work)
                                                 : cost.HopefulMs(work, kUsualDoubt);
    sum += ms;
    slowest = std::max(slowest, ms);
  }
  return std::max(batches * slowest, sum);
}

double CycleMs(const SchedulerSnapshot& snapshot, uint32_t batches, Guess guess) {
  return CycleMs(snapshot, batches, DecodeWork(snapshot, batches), guess);
}

// Of the time between an answer's tokens beside prompts what its stages may take together, where it
// is `cycle_ms` without.
double StagesMs(const SchedulerSnapshot& snapshot, double cycle_ms, double most_slowdown) {
  const double target_ms = std::max(snapshot.inter_token_ms, most_slowdown * cycle_ms);
  return std::max(0.0, target_ms - HopsMs(snapshot));
}

// Rows of a prompt at `position` that a cycle of even steps computes.
uint64_t EvenRows(const SchedulerSnapshot& snapshot, const StepPace& pace, uint32_t position,
                  double step_ms) {
  const uint32_t others = pace.slots - pace.batches;
  uint64_t rows = uint64_t{pace.batches} * RowsInTime(snapshot, DecodeWork(snapshot, pace.batches),
                                                      position, snapshot.token_budget, step_ms);
  if (others > 0) {
    rows += uint64_t{others} * RowsInTime(snapshot, {}, position, snapshot.token_budget, step_ms);
  }
  return rows;
}

// Of a stage's layers, cut into so many slices, the largest slice's share, on the stage where it is
// the largest.
double LargestShare(const SchedulerSnapshot& snapshot, uint32_t slices) {
  double share = 0;
  for (const uint32_t layers : snapshot.layers) {
    const uint32_t most = (layers + slices - 1) / slices;
    share = std::max(share, static_cast<double>(most) / layers);
  }
  return share;
}

// Cuts `rows` of prompts, the next of them at `position`, into waves such that they are through
// soonest, when one step a cycle takes slice_ms. Rows of one wave; 0: of none.
uint32_t CutIntoWaves(const SchedulerSnapshot& snapshot, uint32_t position, uint64_t rows,
                      StepPace* pace) {
  struct Cut {
    uint32_t slices = 1;
    uint32_t most = 0;  // Rows of a wave at most, and those that fit.
    uint32_t fit = 0;
    double step_ms = 0;
    double steps = std::numeric_limits<double>::infinity();
  };
  const auto cut = [&](uint32_t slices) {
    Cut cut{.slices = slices};
    cut.most = slices == 1
                   ? snapshot.token_budget
                   : std::min({kMostWaveRows, snapshot.max_wave_rows, snapshot.token_budget});
    cut.step_ms = pace->slice_ms / (slices == 1 ? 1 : LargestShare(snapshot, slices));
    cut.fit = RowsInTime(snapshot, {}, position, cut.most, cut.step_ms);
    if (cut.fit > 0) {
      // The last one has to pass the other stages too.
      const double waves = std::ceil(static_cast<double>(rows) / cut.fit) + snapshot.stages - 1;
      cut.steps = waves * slices;
    }
    return cut;
  };
  // Behind a wave of other slices stages wait for one another.
  const uint32_t usual = std::max(1u, snapshot.wave_slices);
  Cut best = cut(usual);
  const double worth_it = kMoreSlices * best.steps;
  for (uint32_t slices = 1; pace->may_spread && slices <= kMostSlices; ++slices) {
    const Cut other = slices == usual ? best : cut(slices);
    const double change =
        snapshot.wave_slices == 0 ? 0 : std::abs(static_cast<double>(slices) - usual);
    if (other.steps + change < std::min(worth_it, best.steps)) {
      best = other;
      best.steps += change;
    }
  }
  pace->slices = best.slices;
  pace->step_ms = best.step_ms;
  pace->most_rows = best.most;
  return best.fit;
}

// Gives prompts steps of their own, if that computes more of them and they are more than one step
// has; or if waves are under way. `next` is one of the prompts (none: nullptr), `rows` is all that
// is to be computed, most_ms what a step may take; `cycle_ms`: what answers take that are known to
// be had without prompts.
//
// Of two stages: one computes the prompt's step while the other has that of the decode items. With
// more of them there would have to be as many steps of prompts, and more in flight than there are.
void SetApart(const SchedulerSnapshot& snapshot, double cycle_ms, double most_ms,
              const ReadySession* next, uint64_t rows, StepPace* pace) {
  if (snapshot.stages != 2 || pace->slots != 2 ||
      snapshot.decoding >
          std::min({snapshot.max_items, snapshot.token_budget, snapshot.max_logits_rows})) {
    return;  // Or a step may have no room for all that decode.
  }
  const double target_ms = StagesMs(snapshot, cycle_ms, kMostSlowdownApart);
  const double decode_ms = SlowestMs(snapshot, DecodeWork(snapshot, 1));
  if (target_ms < 2 * decode_ms && pace->batches > 1) {
    return;  // The decode items by themselves take a longer cycle than by micro-batches.
  }
  StepPace apart = *pace;
  apart.batches = 1;
  apart.prompts_apart = true;
  apart.slots = 3;
  // As long as a stage waits for them anyway: they need it twice that long for both.
  apart.slice_ms = std::min(most_ms, std::max(decode_ms, target_ms - decode_ms));
  apart.step_ms = apart.slice_ms;
  if (next != nullptr) {
    const uint32_t fit = CutIntoWaves(snapshot, next->position, rows, &apart);
    const double a_step = static_cast<double>(fit) / apart.slices;
    const auto even = static_cast<double>(
        EvenRows(snapshot, *pace, next->position, std::min(most_ms, target_ms / 2)));
    const bool gains = a_step > even * (snapshot.together ? kWorthIt : 1 / kWorthIt);
    if (snapshot.wave_items == 0 && !(a_step < static_cast<double>(rows) && gains)) {
      return;
    }
    apart.may_spread = apart.may_spread && gains;  // Or those under way end, and it is asked anew.
  }
  *pace = apart;
}

}  // namespace

double CycleMs(const SchedulerSnapshot& snapshot, uint32_t batches, const StepWork& work) {
  return snapshot.costs.empty() ? 0 : CycleMs(snapshot, batches, work, Guess::kHopefulOfNew);
}

double SlowestMs(const SchedulerSnapshot& snapshot, const StepWork& work) {
  return Slowest(snapshot, [&work](const StageCost& cost) { return cost.Ms(work); });
}

uint32_t RowsInTime(const SchedulerSnapshot& snapshot, const StepWork& work, uint32_t position,
                    uint32_t most, double limit_ms) {
  uint32_t fits = 0;
  while (fits < most) {  // A later row attends further, so halve.
    const uint32_t rows = fits + (most - fits + 1) / 2;
    const StepWork step{work.rows + rows, work.attended + Attended(position, rows)};
    if (Slowest(snapshot, [&](const StageCost& cost) {
          return cost.HopefulMs(step, kUsualDoubt);
        }) <= limit_ms) {
      fits = rows;
    } else {
      most = rows - 1;
    }
  }
  return fits;
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
  const ReadySession* next = nullptr;  // Of the prompts.
  uint64_t prompt_rows = 0;
  pace.may_spread = snapshot.wave_may_begin;
  for (const ReadySession& session : snapshot.ready) {
    if (!session.decoding) {
      pace.may_spread = pace.may_spread && session.spreads;
      next = next == nullptr ? &session : next;
      prompt_rows += session.pending;
    }
  }
  // Prompts fill the stages that the micro-batches leave idle.
  const bool prompts = next != nullptr || snapshot.wave_items > 0;
  pace.slots = prompts ? std::max(pace.batches, snapshot.stages) : pace.batches;
  if (snapshot.inter_token_ms > 0 && !snapshot.costs.empty()) {
    const double most_ms = pace.step_ms;
    const double target_ms = std::max(snapshot.inter_token_ms, kMostSlowdown * cycle_ms);
    pace.step_ms = std::min({most_ms, target_ms / pace.slots,
                             StagesMs(snapshot, cycle_ms, kMostSlowdown) / snapshot.stages});
    if (prompts) {
      const double known_ms = std::min(cycle_ms, CycleMs(snapshot, usual, Guess::kExpected));
      SetApart(snapshot, known_ms, most_ms, next, prompt_rows, &pace);
    }
  }
  return pace;
}

uint32_t SlicesInTime(const SchedulerSnapshot& snapshot, const StepWork& work,
                      const StepPace& pace) {
  const double ms = SlowestMs(snapshot, work);
  uint32_t slices = 1;
  while (slices < pace.slices && ms * LargestShare(snapshot, slices) > pace.slice_ms) {
    ++slices;
  }
  return slices;
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
