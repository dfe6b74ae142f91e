#include "coordinator/planner/planner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/model/numerics_class.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/planner/asked.h"
#include "coordinator/planner/explain.h"
#include "coordinator/planner/no_room.h"
#include "coordinator/planner/plan_words.h"
#include "coordinator/planner/rank_comparison.h"
#include "coordinator/planner/ranked_plan.h"
#include "coordinator/planner/solve.h"

namespace strata {
namespace {

// A plan of several kinds is taken where it is so much better than the best one of one kind.
constexpr double kWorthAMix = 1.2;

// One request being planned.
class Planner {
 public:
  Planner(const PlannerCluster& cluster, const PlannerModel& model, const PlannerRequest& request)
      : cluster_(cluster),
        model_(model),
        options_(request.options),
        request_(request),
        kv_(AskedKvOf(request.options)) {}

  absl::StatusOr<v1::Plan> Run() {
    ASSIGN_OR_RETURN(const std::vector<size_t> candidates, CandidatesOf(cluster_, options_));
    return options_.layers().empty() ? Choose(candidates) : Pin();
  }

 private:
  using Links = PlacementProblem::Links;
  PlacementProblem ProblemOf(const std::vector<size_t>& members, Links links = Links::kAll) const {
    PlacementProblem problem(cluster_, model_, members, options_.max_batch_tokens(), kv_.context,
                             kv_.sessions, links);
    problem.pages = kv_.pages;
    return problem;
  }

  // A placement, and the nodes that were to choose from.
  struct Found {
    PlacementProblem problem;
    Solution solution;
    std::vector<size_t> members;
  };

  // The best placement on nodes among these, by their indices.
  std::optional<Found> BestOn(const std::vector<size_t>& members) const {
    const PlacementProblem all = ProblemOf(members, Links::kNone);
    std::vector<size_t> useful;
    for (size_t i = 0; i < members.size(); ++i) {
      if (all.Useful(i)) {
        useful.push_back(members[i]);
      }
    }
    PlacementProblem problem = ProblemOf(useful);
    auto solution = Solve(problem, kv_.goal);
    if (!solution) {
      return std::nullopt;
    }
    problem.pages = solution->pages;
    return Found{std::move(problem), *std::move(solution), std::move(useful)};
  }

  static bool IsOfOneKind(const Found& found) {
    const std::vector<PlacedStage>& stages = found.solution.placement.stages;
    return std::all_of(stages.begin(), stages.end(), [&](const PlacedStage& stage) {
      return found.problem.node(stage.node).numerics ==
             found.problem.node(stages.front().node).numerics;
    });
  }

  // What a placement is worth by the goal: KV pages, or steps a second.
  double Worth(const Solution& solution) const {
    return kv_.goal == v1::PLAN_GOAL_CAPACITY     ? static_cast<double>(solution.pages)
           : kv_.goal == v1::PLAN_GOAL_THROUGHPUT ? 1e3 / std::max(solution.slowest_ms, 1e-9)
                                                  : StepsPerSecond(solution, 1);
  }

  // A placement of nodes of several kinds, where it is to be preferred to the best one of one kind:
  // bits that any node of a kind can compute again are worth something.
  std::optional<Found> BestMix(const std::vector<size_t>& candidates,
                               const std::optional<Found>& alone) const {
    const bool less_precise_alone = model_.activations == "int8";
    if (alone && less_precise_alone) {
      return std::nullopt;  // What it would gain is not known: float32 activations are slower.
    }
    std::optional<Found> mix = BestOn(candidates);
    const bool worth =
        mix && (!alone || Worth(mix->solution) >= kWorthAMix * Worth(alone->solution));
    return worth && !IsOfOneKind(*mix) ? std::move(mix) : std::nullopt;
  }

  absl::StatusOr<v1::Plan> Choose(std::vector<size_t> candidates) {
    std::vector<PlannerNode> floats_alone;
    std::erase_if(candidates, [&](size_t i) {
      if (!TakesActivations(cluster_.nodes[i], request_)) {
        floats_alone.push_back(cluster_.nodes[i]);
      }
      return !TakesActivations(cluster_.nodes[i], request_);
    });
    if (candidates.empty()) {
      return NoInt8Activations("the nodes that the model may be placed on compute");
    }
    RETURN_IF_ERROR(CheckAskedKv(kv_, ProblemOf(candidates, Links::kNone)));
    std::map<std::string, std::vector<size_t>> classes;
    for (const size_t i : candidates) {
      classes[cluster_.nodes[i].numerics].push_back(i);
    }
    std::vector<std::vector<size_t>> kinds;
    std::optional<Found> best;
    for (const auto& [numerics, members] : classes) {
      kinds.push_back(members);
      std::optional<Found> found = BestOn(members);
      if (found && (!best || Better(kv_.goal, found->solution, best->solution))) {
        best = std::move(found);
      }
    }
    std::optional<double> worth_alone;
    bool mixed = false;
    if (kinds.size() > 1) {
      if (best) {
        worth_alone = Worth(best->solution);
      }
      kinds.push_back(candidates);
      if (std::optional<Found> mix = BestMix(candidates, best)) {
        best = std::move(mix);
        mixed = true;
      }
    }
    if (!best) {
      return DoesNotFit(kinds);
    }
    Explained explained{.problem = best->problem, .solution = best->solution};
    explained.floats_alone = std::move(floats_alone);
    if (mixed) {
      explained.mixed_for =
          worth_alone ? Worth(best->solution) / *worth_alone : Explained::kNoKindFits;
    }
    for (const size_t i : candidates) {
      const PlannerNode& node = cluster_.nodes[i];
      if (!mixed && node.numerics != best->problem.node(0).numerics) {
        explained.other_numerics.push_back(node);
      } else if (std::find(best->members.begin(), best->members.end(), i) == best->members.end()) {
        const PlacementProblem alone = ProblemOf({i}).WithoutHostMemory();
        (alone.Useful(0) ? explained.hosts_too_small : explained.too_small).push_back(node);
      }
    }
    return Written(std::move(explained));
  }

  // The error of a model that fits nowhere, by the nodes that lack least.
  absl::Status DoesNotFit(const std::vector<std::vector<size_t>>& kinds) const {
    std::optional<NoRoom> least;
    for (const std::vector<size_t>& members : kinds) {
      NoRoom here = WhyNoRoom(ProblemOf(members), kv_.tokens, kv_.sessions);
      if (!least || here.missing_bytes < least->missing_bytes) {
        least = std::move(here);
      }
    }
    return least->error;
  }

  absl::StatusOr<v1::Plan> Pin() {
    const auto layers = static_cast<uint32_t>(model_.spec.layers.size());
    ASSIGN_OR_RETURN(const std::vector<PinnedStage> pins, PinsOf(cluster_, layers, request_));
    std::vector<size_t> members;
    std::vector<PlacedStage> stages;
    for (const PinnedStage& pin : pins) {
      stages.push_back({members.size(), pin.begin, pin.end});
      members.push_back(pin.nodes.front());
    }
    PlacementProblem problem = ProblemOf(members);
    RETURN_IF_ERROR(CheckAskedKv(kv_, problem));
    for (const PlacedStage& stage : stages) {
      const PlannerNode& node = problem.node(stage.node);
      const uint64_t needed = problem.StageBytes(stage.node, stage.begin, stage.end);
      if (needed > node.free_bytes) {
        return Error(absl::StatusCode::kResourceExhausted, "MODEL_DOES_NOT_FIT",
                     absl::StrCat("layers ", stage.begin, "-", stage.end - 1, " with ", kv_.tokens,
                                  " KV tokens need ", FormatSize(needed), " on node ", node.name,
                                  ", ", FormatSize(needed - node.free_bytes), " more than it has",
                                  FilledFirst(problem, stage)))
            .Node(node.name)
            .Limit(absl::StrCat("free_bytes=", node.free_bytes))
            .Hint("pin fewer layers there, or lower --kv-tokens or --context")
            .Fact("missing_bytes", needed - node.free_bytes);
      }
      if (problem.HostBytes(stage.node, stage.begin, stage.end) > node.host_free_bytes) {
        return HostTooSmall(problem, stage);
      }
    }
    const Solution solution = SolvePinned(problem, kv_.goal, stages);
    problem.pages = solution.pages;
    return Written({.problem = problem, .solution = solution, .pinned = true});
  }

  v1::Plan Written(Explained explained) const {
    const PlacementProblem& problem = explained.problem;
    const Solution& solution = explained.solution;
    const std::vector<PlacedStage>& stages = solution.placement.stages;
    explained.goal = kv_.goal;
    explained.wanted_tokens = kv_.tokens;
    explained.kv_tokens = kv_.goal == v1::PLAN_GOAL_CAPACITY
                              ? (solution.pages - kv_.sessions) * kPageTokens
                              : kv_.tokens;
    explained.in_flight = static_cast<double>(stages.size() + request_.max_in_flight_extra);

    v1::Plan plan;
    plan.set_goal(kv_.goal);
    v1::PlanPipeline& pipeline = *plan.add_pipelines();
    pipeline.set_kv_tokens(explained.kv_tokens);
    for (size_t i = 0; i < stages.size(); ++i) {
      WriteStage(problem, stages, i, pipeline.add_stages());
    }
    std::vector<LayerNumerics> kinds;
    for (const PlacedStage& stage : stages) {
      kinds.push_back({problem.node(stage.node).numerics, stage.begin, stage.end - 1});
    }
    const std::string numerics = NumericsOfStages(kinds);
    plan.mutable_numerics_class()->set_name(NumericsClassName(
        numerics, model_.weight_format, model_.head_format,
        TakesInt8Activations(numerics) ? model_.activations : "f32", model_.kv_format));
    plan.set_limiting_node(problem.node(LimitingNode(problem, solution, kv_.goal)).name);
    plan.set_predicted_tokens_per_s(kv_.goal == v1::PLAN_GOAL_THROUGHPUT
                                        ? StepsPerSecond(solution, explained.in_flight)
                                        : StepsPerSecond(solution, 1));
    plan.set_lower_bound_gap(solution.gap);
    for (std::string& sentence : Explain(explained)) {
      plan.add_why(std::move(sentence));
    }
    return plan;
  }

  void WriteStage(const PlacementProblem& problem, const std::vector<PlacedStage>& stages, size_t i,
                  v1::PlanStage* out) const {
    const PlacedStage& stage = stages[i];
    const PlannerNode& node = problem.node(stage.node);
    v1::PlanRank& rank = *out->add_ranks();
    rank.set_node(node.name);
    rank.set_incarnation(node.incarnation);
    rank.set_device(node.device);
    rank.set_share_end(kShareParts);
    out->set_first_layer(stage.begin);
    out->set_last_layer(stage.end - 1);
    out->set_weight_bytes(problem.WeightBytes(stage.node, stage.begin, stage.end));
    out->set_kv_bytes(
        problem.KvBytes(stage.node, stage.begin, stage.end, problem.pages, stages.size()));
    for (uint32_t group = 0; group < model_.spec.kv_groups.size(); ++group) {
      bool used = false;
      for (uint32_t l = stage.begin; l < stage.end; ++l) {
        used = used || model_.spec.layers[l].attention.kv_group == group;
      }
      out->add_kv_pages(used ? problem.GroupPages(group, problem.pages, stages.size()) : 0);
    }
    // The hop that reaches it, and from the last one the way back: the stages' sum is a token.
    double ms = problem.StageMs(stage.node, stage.begin, stage.end) +
                problem.HopMs(i == 0 ? problem.coordinator() : stages[i - 1].node, stage.node);
    if (i + 1 == stages.size()) {
      ms += problem.HopMs(stage.node, problem.coordinator());
    }
    out->set_predicted_ms(ms);
  }

  const PlannerCluster& cluster_;
  const PlannerModel& model_;
  const v1::LoadOptions& options_;
  const PlannerRequest& request_;
  const AskedKv kv_;
};

}  // namespace

void DropNode(const std::string& name, PlannerCluster* cluster) {
  const auto it = std::find_if(cluster->nodes.begin(), cluster->nodes.end(),
                               [&](const PlannerNode& node) { return node.name == name; });
  if (it == cluster->nodes.end()) {
    return;
  }
  const auto index = it - cluster->nodes.begin();
  cluster->nodes.erase(it);
  cluster->links.erase(cluster->links.begin() + index);
  for (auto& row : cluster->links) {
    row.erase(row.begin() + index);
  }
}

absl::StatusOr<v1::Plan> MakePlan(const PlannerCluster& cluster, const PlannerModel& model,
                                  const PlannerRequest& request) {
  if (AsksForRanks(request.options)) {
    return MakeRankedPlan(cluster, model, request);
  }
  ASSIGN_OR_RETURN(v1::Plan plan, Planner(cluster, model, request).Run());
  const bool open = request.options.ranks() == 0 && request.options.layers().empty();
  return open ? WithRanksWhereTheyWin(cluster, model, request, std::move(plan)) : std::move(plan);
}

}  // namespace strata
