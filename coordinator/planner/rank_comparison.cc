#include "coordinator/planner/rank_comparison.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/plan.h"
#include "coordinator/planner/asked.h"
#include "coordinator/planner/chain_search.h"
#include "coordinator/planner/plan_words.h"
#include "coordinator/planner/rank_groups.h"

namespace strata {
namespace {

// Each group of nodes costs a look at all tensors of the model.
constexpr size_t kMostNodes = 16;
// Rows of a chunk of a prompt, and tokens of the prompt that plans are judged by.
constexpr uint32_t kPromptRows = 512;
constexpr uint32_t kPromptTokens = 2048;

Chain ChainOf(const PlannerCluster& cluster, const PlannerModel& model,
              const PlannerRequest& request, const v1::Plan& plan, uint32_t rows) {
  std::vector<RankGroup> groups;
  std::vector<PlacedStage> stages;
  for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
    stages.push_back({groups.size(), stage.first_layer(), stage.last_layer() + 1});
    RankGroup& group = groups.emplace_back();
    for (const v1::PlanRank& rank : stage.ranks()) {
      const auto node = FindNode(cluster, rank.node());
      STRATA_CHECK(node.has_value());
      group.nodes.push_back(*node);
      group.shares.push_back({rank.share_begin(), rank.share_end()});
    }
  }
  const AskedKv kv = AskedKvOf(request.options);
  const RankGroups costs(cluster, model, std::move(groups), kv, request.options.max_batch_tokens(),
                         rows);
  return ChainSearch(costs, static_cast<uint32_t>(model.spec.layers.size()), v1::PLAN_GOAL_LATENCY)
      .Given(std::move(stages), kv.pages);
}

// A plan and what it is judged by.
struct Judged {
  v1::Plan plan;
  uint32_t ranks = 1;  // As --ranks has it.
  double token_ms = 0;
  double prompt_ms = 0;
};

// One request whose ranks are weighed.
class RankWeighing {
 public:
  RankWeighing(const PlannerCluster& cluster, const PlannerModel& model,
               const PlannerRequest& request)
      : cluster_(cluster),
        model_(model),
        request_(request),
        goal_(AskedKvOf(request.options).goal),
        prompt_tokens_(std::min(kPromptTokens, std::max(1u, request.options.context()))),
        able_(static_cast<size_t>(
            std::count_if(cluster.nodes.begin(), cluster.nodes.end(),
                          [](const PlannerNode& node) { return node.ranks; }))) {}

  bool MayCompare() const {
    return request_.options.layers().empty() && cluster_.nodes.size() <= kMostNodes && able_ >= 2 &&
           model_.of_rank != nullptr;
  }

  Judged Judge(v1::Plan plan, uint32_t ranks) const {
    Judged judged = {.plan = std::move(plan), .ranks = ranks};
    judged.token_ms = StepMs(cluster_, model_, request_, judged.plan, 1);
    judged.prompt_ms = PromptMs(cluster_, model_, request_, judged.plan, prompt_tokens_);
    return judged;
  }

  std::optional<Judged> With(uint32_t ranks) const {
    PlannerRequest request = request_;
    request.options.set_ranks(ranks);
    absl::StatusOr<v1::Plan> plan = MakePlan(cluster_, model_, request);
    return plan.ok() ? std::optional(Judge(*std::move(plan), ranks)) : std::nullopt;
  }

  // Of plans with ranks the fastest one, of those that may be taken instead of `plan`, if any may.
  std::optional<Judged> BestWithRanks(const Judged& plan) const {
    const auto most = static_cast<uint32_t>(std::min<size_t>(able_, kMostRanks));
    std::optional<Judged> best;
    for (const uint32_t ranks : std::set<uint32_t>{2, std::min(4u, most), most}) {
      std::optional<Judged> found = With(ranks);
      if (found && (!best || Before(*found, *best, plan))) {
        best = std::move(found);
      }
    }
    return best;
  }

  // Why ranks are not taken instead of `plan` unasked; "": they are.
  std::string WhyNot(const Judged& ranks, const Judged& plan) const {
    if (goal_ == v1::PLAN_GOAL_CAPACITY) {
      return "the goal is capacity";
    }
    if (ranks.plan.numerics_class().name() != plan.plan.numerics_class().name()) {
      return absl::StrCat("they compute in the class ", ranks.plan.numerics_class().name());
    }
    if (std::string names = OnOneMachine(ranks.plan); !names.empty()) {
      return absl::StrCat("nodes ", names, " are of one machine and share its memory");
    }
    if (kReachOfRanks * ranks.plan.predicted_tokens_per_s() <
        kWorthRanks * plan.plan.predicted_tokens_per_s()) {
      return absl::StrCat("less than ", kWorthRanks, " times as many tokens a second", Counted());
    }
    if (ranks.prompt_ms > kReachOfRanks * plan.prompt_ms) {
      return absl::StrCat("a prompt would take longer", Counted());
    }
    return "";
  }

  std::string Compared(const Judged& other, const Judged& plan) const {
    return absl::StrCat(" one token would take ", MsText(other.token_ms), " instead of ",
                        MsText(plan.token_ms), ", and a prompt of ", prompt_tokens_, " tokens ",
                        MsText(other.prompt_ms), " instead of ", MsText(plan.prompt_ms),
                        ", by these measurements");
  }

  static std::string Counted() {
    return absl::StrCat(", where ", kReachOfRanks * 100, " % of what is predicted is counted on");
  }

 private:
  bool Before(const Judged& a, const Judged& b, const Judged& plan) const {
    const bool takes_a = WhyNot(a, plan).empty();
    const bool takes_b = WhyNot(b, plan).empty();
    return takes_a != takes_b ? takes_a
                              : a.plan.predicted_tokens_per_s() > b.plan.predicted_tokens_per_s();
  }

  // Two nodes of a stage: "a and b"; "": there are none.
  std::string OnOneMachine(const v1::Plan& plan) const {
    for (const v1::PlanStage& stage : OnlyPipeline(plan).stages()) {
      for (int i = 1; i < stage.ranks_size(); ++i) {
        const PlannerNode& node = cluster_.nodes[*FindNode(cluster_, stage.ranks(i).node())];
        for (int before = 0; before < i && !node.machine.empty(); ++before) {
          const PlannerNode& other =
              cluster_.nodes[*FindNode(cluster_, stage.ranks(before).node())];
          if (other.machine == node.machine) {
            return absl::StrCat(other.name, " and ", node.name);
          }
        }
      }
    }
    return "";
  }

  const PlannerCluster& cluster_;
  const PlannerModel& model_;
  const PlannerRequest& request_;
  const v1::PlanGoal goal_;
  const uint32_t prompt_tokens_;
  const size_t able_;
};

}  // namespace

double StepMs(const PlannerCluster& cluster, const PlannerModel& model,
              const PlannerRequest& request, const v1::Plan& plan, uint32_t rows) {
  return ChainOf(cluster, model, request, plan, rows).latency_ms;
}

double PromptMs(const PlannerCluster& cluster, const PlannerModel& model,
                const PlannerRequest& request, const v1::Plan& plan, uint32_t tokens) {
  const uint32_t rows =
      std::min({tokens, kPromptRows, std::max(1u, request.options.max_batch_tokens())});
  const Chain chunk = ChainOf(cluster, model, request, plan, rows);
  const double chunks = static_cast<double>(tokens) / rows;
  return AskedKvOf(request.options).goal == v1::PLAN_GOAL_THROUGHPUT
             ? chunks * chunk.slowest_ms
             : chunk.latency_ms + (chunks - 1) * chunk.slowest_ms;
}

v1::Plan WithRanksWhereTheyWin(const PlannerCluster& cluster, const PlannerModel& model,
                               const PlannerRequest& request, v1::Plan plan) {
  const RankWeighing weighing(cluster, model, request);
  if (!weighing.MayCompare()) {
    return plan;
  }
  const Judged without = weighing.Judge(std::move(plan), 1);
  std::optional<Judged> ranks = weighing.BestWithRanks(without);
  if (!ranks) {
    return without.plan;
  }
  if (const std::string why_not = weighing.WhyNot(*ranks, without); !why_not.empty()) {
    plan = without.plan;
    plan.add_why(absl::StrCat("With --ranks ", ranks->ranks, weighing.Compared(*ranks, without),
                              ". Not taken unasked: ", why_not, "."));
    return plan;
  }
  plan = std::move(ranks->plan);
  plan.add_why(absl::StrCat("With one node a stage (--ranks 1)", weighing.Compared(without, *ranks),
                            ". So --ranks ", ranks->ranks, " is taken: ", kWorthRanks,
                            " times as many tokens a second or more, and no ",
                            "prompt takes longer", RankWeighing::Counted(), "."));
  return plan;
}

std::string CompareRanks(const PlannerCluster& cluster, const PlannerModel& model,
                         const PlannerRequest& request, const v1::Plan& plan) {
  const RankWeighing weighing(cluster, model, request);
  if (request.options.ranks() == 0 || !weighing.MayCompare()) {
    return "";
  }
  const bool has_ranks = HasSharedStage(plan);
  const Judged asked = weighing.Judge(plan, request.options.ranks());
  const std::optional<Judged> other = has_ranks ? weighing.With(1) : weighing.BestWithRanks(asked);
  if (!other) {
    return "";
  }
  const std::string with =
      has_ranks ? "With one node a stage" : absl::StrCat("With --ranks ", other->ranks);
  return absl::StrCat(with, weighing.Compared(*other, asked), ".");
}

}  // namespace strata
