#include "coordinator/planner/solve.h"

#include <algorithm>

#include "coordinator/planner/exact_search.h"
#include "coordinator/planner/feasibility.h"
#include "coordinator/planner/local_search.h"
#include "coordinator/planner/lower_bound.h"

namespace strata {
namespace {

// Beyond rounding, two times of different sums are equal within this.
constexpr double kRounding = 1e-9;
constexpr uint32_t kQuickStarts = 2;
constexpr uint32_t kStarts = 20;

struct Fastest {
  Placement placement;
  double lower_ms = 0;
};

std::optional<Fastest> MinimizeLatency(const PlacementProblem& problem) {
  const double bound = LatencyLowerBoundMs(problem);
  const double good_enough = bound * (1 + kRounding);
  const bool subsets = problem.equal_layers() && problem.nodes() <= kMaxSubsetNodes;
  const bool layers = !problem.equal_layers() && LayersSearchable(problem);
  Fastest result;
  result.placement =
      SearchLocally(problem, good_enough, subsets || layers ? kQuickStarts : kStarts);
  result.lower_ms = bound;
  if (result.placement.latency_ms > good_enough) {
    if (subsets) {
      result.placement = SearchSubsets(problem, result.placement);
    } else if (layers) {
      result.placement = SearchLayers(problem);
    }
    if (subsets || layers) {
      result.lower_ms = result.placement.latency_ms;
    }
  }
  if (result.placement.latency_ms == kNever) {
    return std::nullopt;
  }
  if (result.placement.latency_ms <= good_enough) {
    result.lower_ms = result.placement.latency_ms;
  }
  return result;
}

double Gap(double value, double bound) { return bound > 0 ? std::max(0.0, value / bound - 1) : 0; }

std::optional<Solution> SolveThroughput(PlacementProblem problem) {
  const auto bound = SmallestSlowest(problem);
  if (!bound) {
    return std::nullopt;
  }
  problem.slowest_ms = bound->ms;
  const auto fastest = MinimizeLatency(problem);
  Solution solution;
  if (fastest) {
    solution.placement = fastest->placement;
  } else {  // Only the search for feasibility knows how.
    solution.placement.stages = Feasible(problem).stages;
    solution.placement.latency_ms = problem.LatencyMs(solution.placement.stages);
  }
  solution.slowest_ms = problem.SlowestMs(solution.placement.stages);
  solution.gap = Gap(solution.slowest_ms, bound->lower_ms);
  return solution;
}

std::optional<Solution> SolveCapacity(PlacementProblem problem) {
  bool exact = true;
  const auto pages = MostPages(problem, problem.pages, &exact);
  if (!pages) {
    return std::nullopt;
  }
  problem.pages = *pages;
  Solution solution;
  solution.pages = *pages;
  if (const auto fastest = MinimizeLatency(problem)) {
    solution.placement = fastest->placement;
  } else {
    solution.placement.stages = Feasible(problem).stages;
    solution.placement.latency_ms = problem.LatencyMs(solution.placement.stages);
  }
  if (!exact) {
    // No more than all memory can hold if it could be cut anywhere.
    double free = 0;
    for (size_t i = 0; i < problem.nodes(); ++i) {
      free += static_cast<double>(problem.node(i).free_bytes);
    }
    const double weights = static_cast<double>(problem.LeastWeightBytes());
    const double page =
        static_cast<double>(problem.LeastKvBytes(*pages)) / static_cast<double>(*pages);
    solution.gap = std::max(0.0, (free - weights) / page / static_cast<double>(*pages) - 1);
  }
  solution.slowest_ms = problem.SlowestMs(solution.placement.stages);
  return solution;
}

}  // namespace

std::optional<Solution> Solve(PlacementProblem problem, v1::PlanGoal goal) {
  std::optional<Solution> solution;
  if (problem.nodes() == 0) {
    return solution;
  }
  if (goal == v1::PLAN_GOAL_CAPACITY) {
    return SolveCapacity(std::move(problem));
  }
  if (goal == v1::PLAN_GOAL_THROUGHPUT) {
    solution = SolveThroughput(problem);
  } else if (const auto fastest = MinimizeLatency(problem)) {
    solution.emplace();
    solution->placement = fastest->placement;
    solution->slowest_ms = problem.SlowestMs(fastest->placement.stages);
    solution->gap = Gap(fastest->placement.latency_ms, fastest->lower_ms);
  }
  if (solution) {
    solution->pages = problem.pages;
  }
  return solution;
}

Solution SolvePinned(const PlacementProblem& problem, v1::PlanGoal goal,
                     const std::vector<PlacedStage>& stages) {
  Solution solution;
  solution.placement.stages = stages;
  solution.pages = problem.pages;
  if (goal == v1::PLAN_GOAL_CAPACITY) {
    solution.pages = std::min(uint64_t{1} << 31, problem.UsefulPages());
    for (const PlacedStage& stage : stages) {
      solution.pages =
          std::min(solution.pages, problem.PagesThatFit(stage.node, stage.begin, stage.end));
    }
  }
  solution.placement.latency_ms = problem.LatencyMs(stages);
  solution.slowest_ms = problem.SlowestMs(stages);
  if (const auto free = Solve(problem, goal)) {
    // Against the bound of what was not pinned.
    switch (goal) {
      case v1::PLAN_GOAL_CAPACITY:
        solution.gap = Gap(static_cast<double>(free->pages) * (1 + free->gap),
                           static_cast<double>(solution.pages));
        break;
      case v1::PLAN_GOAL_THROUGHPUT:
        solution.gap = Gap(solution.slowest_ms, free->slowest_ms / (1 + free->gap));
        break;
      default:
        solution.gap =
            Gap(solution.placement.latency_ms, free->placement.latency_ms / (1 + free->gap));
        break;
    }
    solution.gap = solution.gap < kRounding ? 0 : solution.gap;
  }
  return solution;
}

bool Better(v1::PlanGoal goal, const Solution& a, const Solution& b) {
  if (goal == v1::PLAN_GOAL_CAPACITY && a.pages != b.pages) {
    return a.pages > b.pages;
  }
  if (goal == v1::PLAN_GOAL_THROUGHPUT && a.slowest_ms != b.slowest_ms) {
    return a.slowest_ms < b.slowest_ms;
  }
  return a.placement.latency_ms < b.placement.latency_ms;
}

double StepsPerSecond(const Solution& solution, double in_flight) {
  return 1e3 * in_flight /
         std::max({in_flight * solution.slowest_ms, solution.placement.latency_ms, 1e-9});
}

}  // namespace strata
