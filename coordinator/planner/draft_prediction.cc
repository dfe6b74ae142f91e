#include "coordinator/planner/draft_prediction.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/plan.h"
#include "coordinator/planner/placement_problem.h"

namespace strata {
namespace {

// The drafts of a step that promise the most tokens a second, if that is enough.
uint32_t DraftsOfStep(double right, const DraftRules& rules,
                      const std::function<PlannedStep(uint32_t)>& times) {
  double best_rate = rules.least_gain / times(1).cycle_ms;
  uint32_t best = 0;
  double gain = 1;
  double tokens = 1;
  for (uint32_t drafts = 1; drafts <= rules.most_drafts; ++drafts) {
    gain *= right;
    if (gain < rules.least_chance) {
      break;
    }
    tokens += gain;
    if (const double rate = tokens / times(drafts + 1).cycle_ms; rate > best_rate) {
      best_rate = rate;
      best = drafts;
    }
  }
  return best;
}

// The stages of a plan by indices into the cluster's nodes, which become `members`, one a stage.
bool FindStages(const PlannerCluster& cluster, const v1::Plan& plan, std::vector<size_t>* members,
                std::vector<PlacedStage>* stages) {
  const v1::PlanPipeline* pipeline = FindPipeline(plan);
  if (pipeline == nullptr) {
    return false;
  }
  for (const v1::PlanStage& stage : pipeline->stages()) {
    if (stage.ranks_size() > 1) {
      return false;  // What more rows cost there is not known.
    }
    const v1::PlanRank* rank = FindRank(stage);
    const auto node = std::find_if(
        cluster.nodes.begin(), cluster.nodes.end(),
        [&](const PlannerNode& n) { return rank != nullptr && n.name == rank->node(); });
    if (node == cluster.nodes.end()) {
      return false;
    }
    stages->push_back({members->size(), stage.first_layer(), stage.last_layer() + 1});
    members->push_back(static_cast<size_t>(node - cluster.nodes.begin()));
  }
  return !stages->empty();
}

PlannedStep TimesOf(const PlacementProblem& problem, const std::vector<PlacedStage>& stages) {
  PlannedStep times{.cycle_ms = 0, .slowest_ms = problem.SlowestMs(stages)};
  size_t at = problem.coordinator();
  for (const PlacedStage& stage : stages) {
    times.cycle_ms +=
        problem.HopMs(at, stage.node) + problem.StageMs(stage.node, stage.begin, stage.end);
    at = stage.node;
  }
  times.cycle_ms += problem.HopMs(at, problem.coordinator());
  return times;
}

}  // namespace

DraftPrediction PredictDrafts(double right, const DraftRules& rules,
                              const std::function<PlannedStep(uint32_t rows)>& times) {
  DraftPrediction prediction{.right = right};
  prediction.drafts = DraftsOfStep(right, rules, times);
  // A step's guesses, and the token that the next one begins with.
  const double whole = std::pow(right, prediction.drafts + 1);
  for (double all = whole; prediction.steps < rules.most_steps && all >= rules.least_ahead;
       all *= whole) {
    ++prediction.steps;
  }
  const PlannedStep step = times(prediction.drafts + 1);
  const double behind_ms = prediction.steps == 1
                               ? step.cycle_ms
                               : std::max(step.slowest_ms, step.cycle_ms / prediction.steps);
  // From one wrong guess to the next: so many steps, and all tokens that were right, with the one
  // that is in the place of the wrong one.
  const double steps = 1 / (1 - whole);
  const double tokens = 1 / (1 - right);
  prediction.tokens_per_s = 1e3 * tokens / (step.cycle_ms + (steps - 1) * behind_ms);
  prediction.times = prediction.tokens_per_s * times(1).cycle_ms / 1e3;
  return prediction;
}

std::vector<DraftPrediction> PredictDrafts(const PlannerCluster& cluster, const PlannerModel& model,
                                           const v1::LoadOptions& options, const v1::Plan& plan,
                                           const DraftRules& rules) {
  std::vector<size_t> members;
  std::vector<PlacedStage> stages;
  if (!FindStages(cluster, plan, &members, &stages)) {
    return {};
  }
  std::vector<PlannedStep> times;
  for (uint32_t rows = 1; rows <= rules.most_drafts + 1; ++rows) {
    times.push_back(TimesOf(
        PlacementProblem(cluster, model, members, options.max_batch_tokens(), options.context(),
                         options.sessions(), PlacementProblem::Links::kAll, rows),
        stages));
  }
  if (!(times.front().cycle_ms > 0) || times.back().cycle_ms == kNever) {
    return {};
  }
  const auto& groups = model.spec.kv_groups;
  const bool windows = std::any_of(groups.begin(), groups.end(), [](const KvGroupSpec& group) {
    return group.kind == KvKind::kWindow;
  });
  DraftRules of_plan = rules;
  of_plan.most_steps =
      windows ? 1 : std::min(rules.most_steps, static_cast<uint32_t>(stages.size()));
  std::vector<DraftPrediction> predictions;
  for (const double right : kPredictedRight) {
    predictions.push_back(
        PredictDrafts(right, of_plan, [&](uint32_t rows) { return times[rows - 1]; }));
  }
  return predictions;
}

}  // namespace strata
