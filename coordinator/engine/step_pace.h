// How steps follow one another: how many micro-batches there are, and how long a step may take.
#ifndef STRATA_COORDINATOR_ENGINE_STEP_PACE_H_
#define STRATA_COORDINATOR_ENGINE_STEP_PACE_H_

#include <cstdint>

#include "coordinator/engine/scheduler.h"

namespace strata {

// Prompts are not cut finer than this to fill the pipeline; but short ones are, where the stages'
// times are known and nothing decodes, whose steps they would join.
inline constexpr uint32_t kMinPrefillRows = 64;
inline constexpr uint32_t kLeastPrefillRows = 4;
inline constexpr uint32_t kShortPromptRows = 256;
// Where answers alone come no faster than the inter-token target, a token may take this many times
// as long while prompts are computed beside them.
//
// Prompts then get the pipeline for (f - 1) / f of the time, or for more, and go on faster than
// that where their rows share the reading of the weights with decode items beside them. Asked for
// are at most 1.5 times the latency for the answers, and at most 2.5 times the time alone for a
// prompt of 1,500: 1.4 keeps both with something left for the scatter of measurements
// (scheduler_latency_test.cc).
inline constexpr double kMostSlowdown = 1.4;
// Where prompts have steps of their own, less: those of several slices come less evenly, and memory
// that stages share is not as fast every time.
inline constexpr double kMostSlowdownApart = 1.34;

struct StepPace {
  // Steps that share the sessions that decode.
  uint32_t batches = 1;
  // Steps in flight from which on it is better to wait for a full micro-batch than to send one
  // more.
  uint32_t slots = 1;
  // All sessions that decode are in one step without parts of prompts, which have the next step to
  // themselves. Only where batches is 1.
  bool prompts_apart = false;
  // What the slowest stage may take for parts of prompts in a step, or for all slices of a wave;
  // infinite: no limit.
  double step_ms = 0;
  // Where prompts are apart: what it may take for one slice, how many of them a stage's layers are
  // worth cutting into, and the most rows of a wave.
  double slice_ms = 0;
  uint32_t slices = 1;
  uint32_t most_rows = UINT32_MAX;
  bool may_spread = false;  // Another wave may begin.
};

// Micro-batches: as many as give every session its next token soonest, which is also what gives the
// most tokens. A cycle takes max(m * T, sum of T + hops), T being the slowest stage's time for a
// micro-batch of ceil(decoding / m): more of them keep the slowest stage at work while others
// compute and frames travel (m >= (sum of T + hops) / T), but make each smaller, and a small one
// costs nearly as much as a large one where reading the weights is what takes the time. So the
// number of stages is left only for one with a cycle shorter by 3 % at least: with short hops a
// third micro-batch for two stages would hide the hops, and cost a third more steps.
//
// One micro-batch leaves all stages but one idle, and where they share a machine that one has the
// machine to itself: its steps take what is known of steps that are alone. What was not seen for
// long is taken to be as short as it may well be, and so found out; sessions that are together, or
// apart, stay so until the other way is shorter by 3 %.
//
// A step's time: such that a cycle with parts of prompts in all its steps takes no longer than the
// inter-token target, or kMostSlowdown times the cycle without prompts where that is more; and not
// more than most_step_ms.
//
// In that time prompts ride beside decode items, in even steps; or, with two stages, they have
// every other step to themselves between those of all decode items. That is so if it computes more
// of their rows, by 3 % where sessions are not together yet, and until it computes 3 % less; its
// time is measured by the way of answering that is known to be the shorter one, and is at least
// that of the decode items' step, for which a stage waits while the other computes it. It computes
// more where a few rows more cost much and many more little: eight rows are read as fast as one
// where sixteen take half as long again.
//
// Prompts that are apart go by waves where that computes them sooner: more rows at once are cheaper
// each, and where only some of the layers are in a step, it takes no longer.
StepPace PaceOf(const SchedulerSnapshot& snapshot);

// The slowest stage's time for a step; 0 when nothing is known.
double SlowestMs(const SchedulerSnapshot& snapshot, const StepWork& work);

// How long it may well take until each session has its next token, where steps have this work, in
// so many micro-batches; 0 when nothing is known.
double CycleMs(const SchedulerSnapshot& snapshot, uint32_t batches, const StepWork& work);

// The most rows, up to `most`, of a prompt at `position` that a step may have beside `work` such
// that the slowest stage takes no longer than limit_ms. Of as many as were not seen for long it is
// what they may well take that counts, or it would never be found out.
uint32_t RowsInTime(const SchedulerSnapshot& snapshot, const StepWork& work, uint32_t position,
                    uint32_t most, double limit_ms);

// Into how many slices on each stage a wave of `work` is to be cut such that none takes longer than
// pace.slice_ms; pace.slices at most.
uint32_t SlicesInTime(const SchedulerSnapshot& snapshot, const StepWork& work,
                      const StepPace& pace);

// Rows of one step's part of `prompts` (all that is to be computed of them) such that they are
// through the pipeline soonest, alone: smaller ones keep more stages at work, larger ones read the
// weights more rarely. UINT32_MAX when nothing is known, and for one stage.
uint32_t RowsToFill(const SchedulerSnapshot& snapshot, const StepWork& prompts);

}  // namespace strata

#endif  // STRATA_COORDINATOR_ENGINE_STEP_PACE_H_
