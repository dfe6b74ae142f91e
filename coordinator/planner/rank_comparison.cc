#include "coordinator/planner/rank_comparison.h"

#include <algorithm>
#include <optional>
#include <set>
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
constexpr uint32_t kPromptRows = 512;

absl::StatusOr<v1::Plan> PlanWith(uint32_t ranks, const PlannerCluster& cluster,
                                  const PlannerModel& model, PlannerRequest request) {
  request.options.set_ranks(ranks);
  return MakePlan(cluster, model, request);
}

}  // namespace

double StepMs(const PlannerCluster& cluster, const PlannerModel& model,
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
      .Given(std::move(stages), kv.pages)
      .latency_ms;
}

std::string CompareRanks(const PlannerCluster& cluster, const PlannerModel& model,
                         const PlannerRequest& request, const v1::Plan& plan) {
  const auto able =
      static_cast<size_t>(std::count_if(cluster.nodes.begin(), cluster.nodes.end(),
                                        [](const PlannerNode& node) { return node.ranks; }));
  if (!request.options.layers().empty() || cluster.nodes.size() > kMostNodes || able < 2) {
    return "";
  }
  const bool has_ranks = HasSharedStage(plan);
  std::set<uint32_t> others = {1};
  if (!has_ranks) {
    others = {2, static_cast<uint32_t>(std::min<size_t>(able, kMostRanks))};
  }
  std::optional<v1::Plan> other;
  uint32_t ranks = 1;
  for (const uint32_t count : others) {
    absl::StatusOr<v1::Plan> found = PlanWith(count, cluster, model, request);
    if (found.ok() &&
        (!other || found->predicted_tokens_per_s() > other->predicted_tokens_per_s())) {
      other = *std::move(found);
      ranks = count;
    }
  }
  if (!other) {
    return "";
  }
  const uint32_t rows = std::min(kPromptRows, std::max(1u, request.options.max_batch_tokens()));
  const auto ms = [&](const v1::Plan& of, uint32_t step) {
    return MsText(StepMs(cluster, model, request, of, step));
  };
  const std::string with =
      has_ranks ? "With one node a stage" : absl::StrCat("With --ranks ", ranks);
  return absl::StrCat(with, " one token would take ", ms(*other, 1), " instead of ", ms(plan, 1),
                      ", and ", rows, " rows of a prompt ", ms(*other, rows), " instead of ",
                      ms(plan, rows), ", by these measurements.");
}

}  // namespace strata
