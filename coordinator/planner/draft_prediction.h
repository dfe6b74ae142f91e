// What drafted tokens and steps ahead of results do to the pace of one answer that is alone
// (docs/internals/drafts.md): predicted as steps are timed by the planner. Pure functions.
#ifndef STRATA_COORDINATOR_PLANNER_DRAFT_PREDICTION_H_
#define STRATA_COORDINATOR_PLANNER_DRAFT_PREDICTION_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "coordinator/planner/planner.h"
#include "strata/v1/types.pb.h"

namespace strata {

struct DraftPrediction {
  double right = 0;  // Of the guesses, in 0..1: what the rest is predicted for.
  double tokens_per_s = 0;
  double times = 1;     // As many as without drafts.
  uint32_t drafts = 0;  // Drafted tokens of a step.
  uint32_t steps = 1;   // In flight at once; all but one of them ahead of the results before.
};

// What the engine that is predicted goes by.
struct DraftRules {
  uint32_t most_drafts = 0;  // Of a step.
  uint32_t most_steps = 1;   // In flight, whatever the number of stages.
  double least_gain = 1;     // Tokens a second with drafts, of those without.
  double least_chance = 0;   // Of a draft, to be worth a row.
  double least_ahead = 1;    // That all guesses in flight are right, for a step ahead of them.
};

// Of a step that is alone in the pipeline.
struct PlannedStep {
  double cycle_ms = 0;    // Until its result is back. > 0.
  double slowest_ms = 0;  // On the slowest stage, or link.
};

// Where each guess is right with the chance `right`, 0 <= right < 1, if those before it are.
// `times` is asked for steps of 1 to most_drafts + 1 rows.
//
// A step has as many drafts as the scheduler would choose, by what steps take that are alone. Steps
// ahead then go as far as the guesses in flight are likely enough. They follow one another at the
// pace of the slowest stage, or as results make room; with the first wrong guess all in flight come
// to nothing, and the next step is alone again. That it may meet one of those at the first stage is
// not counted.
DraftPrediction PredictDrafts(double right, const DraftRules& rules,
                              const std::function<PlannedStep(uint32_t rows)>& times);

// The shares of right guesses that plans are predicted for.
inline constexpr double kPredictedRight[] = {0.5, 0.7, 0.85};

// For each of them, by a plan for these complete options, of this cluster's nodes; nothing where it
// names another one. Rows cost what their arithmetic takes beyond the reading of the weights, as
// nodes say how fast they are, and of a mixture the experts that they do not share. Where layers
// have windows no step is sent ahead.
std::vector<DraftPrediction> PredictDrafts(const PlannerCluster& cluster, const PlannerModel& model,
                                           const v1::LoadOptions& options, const v1::Plan& plan,
                                           const DraftRules& rules);

}  // namespace strata

#endif  // STRATA_COORDINATOR_PLANNER_DRAFT_PREDICTION_H_
