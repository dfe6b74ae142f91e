#include "coordinator/planner/ranked_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/model/rank_outputs.h"
#include "common/status.h"
#include "common/units.h"
#include "coordinator/planner/asked.h"
#include "coordinator/planner/chain_search.h"
#include "coordinator/planner/plan_words.h"
#include "coordinator/planner/rank_groups.h"
#include "coordinator/planner/ranked_report.h"

namespace strata {
namespace {

// Groups that are searched among: the fastest ones.
constexpr size_t kMostGroups = 32;

class RankedPlanner {
 public:
  RankedPlanner(const PlannerCluster& cluster, const PlannerModel& model,
                const PlannerRequest& request)
      : cluster_(cluster),
        model_(model),
        request_(request),
        kv_(AskedKvOf(request.options)),
        layers_(static_cast<uint32_t>(model.spec.layers.size())) {}

  absl::StatusOr<v1::Plan> Run() {
    if (request_.options.ranks() > kMostRanks) {
      return Error(absl::StatusCode::kInvalidArgument, "RANKS_INVALID",
                   absl::StrCat("--ranks ", request_.options.ranks(), " is more than ", kMostRanks))
          .Limit(absl::StrCat("ranks=", kMostRanks))
          .Hint("have at most 8 nodes compute a stage together");
    }
    if (request_.options.standby() > 0) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_STANDBY",
                   "--standby keeps packed weights of whole layers, and ranks have parts of them")
          .Limit("standby=0")
          .Hint("load the model without --standby, or without --ranks");
    }
    ASSIGN_OR_RETURN(const std::vector<size_t> candidates,
                     CandidatesOf(cluster_, request_.options));
    return request_.options.layers().empty() ? Choose(candidates) : Pin();
  }

 private:
  absl::Status CheckTogether(const PlannerNode& node) const {
    if (node.ranks) {
      return absl::OkStatus();
    }
    return Error(absl::StatusCode::kFailedPrecondition, "RANKS_NOT_SUPPORTED",
                 absl::StrCat("node ", node.name, " computes on ", node.device,
                              " and cannot compute a stage together with others"))
        .Node(node.name)
        .Hint("give it layers of its own; CPU workers of this version compute stages together");
  }

  // Shares by weight; by bandwidth where there are no weights.
  absl::StatusOr<RankGroup> GroupOf(std::vector<size_t> nodes, std::vector<double> weights) const {
    if (weights.empty()) {
      for (const size_t node : nodes) {
        weights.push_back(cluster_.nodes[node].read_bytes_per_s);
      }
    }
    RankGroup group = {.nodes = std::move(nodes), .shares = {}};
    ASSIGN_OR_RETURN(group.shares, SharesByWeight(weights));
    for (size_t r = 0; r < group.shares.size(); ++r) {
      if (group.shares[r].empty()) {
        return Error(absl::StatusCode::kInvalidArgument, "RANKS_INVALID",
                     absl::StrCat("the share of node ", cluster_.nodes[group.nodes[r]].name,
                                  " is less than a part of ", kShareParts))
            .Node(cluster_.nodes[group.nodes[r]].name)
            .Hint("leave that node out, or give shares by --layers a=2+b=1:0-9");
      }
    }
    return group;
  }

  absl::StatusOr<v1::Plan> Pin() {
    ASSIGN_OR_RETURN(const std::vector<PinnedStage> pins, PinsOf(cluster_, layers_, request_));
    std::vector<RankGroup> of;
    std::vector<PlacedStage> stages;
    for (const PinnedStage& pin : pins) {
      for (const size_t node : pin.nodes) {
        if (pin.nodes.size() > 1) {
          RETURN_IF_ERROR(CheckTogether(cluster_.nodes[node]));
        }
        if (cluster_.nodes[node].numerics != cluster_.nodes[pin.nodes[0]].numerics) {
          return Error(absl::StatusCode::kFailedPrecondition, "RANKS_NOT_SUPPORTED",
                       absl::StrCat("nodes ", cluster_.nodes[pin.nodes[0]].name, " and ",
                                    cluster_.nodes[node].name,
                                    " compute in other numerics, and not one stage together"))
              .Node(cluster_.nodes[node].name)
              .Hint("give each of them layers of its own, or upgrade the older one");
        }
      }
      stages.push_back({of.size(), pin.begin, pin.end});
      ASSIGN_OR_RETURN(RankGroup group, GroupOf(pin.nodes, pin.weights));
      of.push_back(std::move(group));
    }
    const RankGroups groups(cluster_, model_, std::move(of), kv_,
                            request_.options.max_batch_tokens());
    RETURN_IF_ERROR(CheckAskedKv(kv_, groups.firsts()));
    for (const PlacedStage& stage : stages) {
      RETURN_IF_ERROR(CheckFits(groups, stage));
    }
    const Chain chain = ChainSearch(groups, layers_, kv_.goal).Given(std::move(stages), kv_.pages);
    return PlanOfChain(cluster_, model_, request_, kv_, groups, chain, {});
  }

  absl::Status CheckFits(const RankGroups& groups, const PlacedStage& stage) const {
    for (size_t r = 0; r < groups.group(stage.node).nodes.size(); ++r) {
      const PlannerNode& node = groups.node(stage.node, r);
      const uint64_t needed = groups.RankBytes(stage.node, r, stage.begin, stage.end, kv_.pages);
      if (needed > node.free_bytes) {
        return Error(absl::StatusCode::kResourceExhausted, "MODEL_DOES_NOT_FIT",
                     absl::StrCat("the part of ", LayersText(stage), " with ", kv_.tokens,
                                  " KV tokens needs ", FormatSize(needed), " on node ", node.name,
                                  ", ", FormatSize(needed - node.free_bytes), " more than it has"))
            .Node(node.name)
            .Limit(absl::StrCat("free_bytes=", node.free_bytes))
            .Hint(
                "give it a smaller share or fewer layers by --layers a=2+b=1:0-9, or lower "
                "--kv-tokens or --context")
            .Fact("missing_bytes", needed - node.free_bytes);
      }
    }
    if (!groups.Fits(stage.node, stage.begin, stage.end, kv_.pages)) {
      const PlannerNode& node = groups.node(stage.node, 0);
      return Error(absl::StatusCode::kResourceExhausted, "MODEL_DOES_NOT_FIT",
                   absl::StrCat(LayersText(stage), " take more of the host's memory of node ",
                                node.name, " while they are packed than is free"))
          .Node(node.name)
          .Limit(absl::StrCat("host_free_bytes=", node.host_free_bytes))
          .Hint("raise --host-memory of that worker, or pin fewer layers there");
    }
    return absl::OkStatus();
  }

  // Groups of so many nodes of one kind: the fastest that is left, and those nearest to it, of
  // equally near ones the fastest. Links count as equal within a factor of two.
  std::vector<std::vector<size_t>> Grouped(std::vector<size_t> nodes) const {
    const auto faster = [&](size_t a, size_t b) {
      return cluster_.nodes[a].read_bytes_per_s > cluster_.nodes[b].read_bytes_per_s;
    };
    std::stable_sort(nodes.begin(), nodes.end(), faster);
    const size_t ranks = request_.options.ranks();
    std::vector<std::vector<size_t>> groups;
    while (nodes.size() >= ranks && groups.size() < kMostGroups) {
      const size_t first = nodes.front();
      const auto away = [&](size_t node) {
        const double ms = std::max(cluster_.links[first][node].latency_ms,
                                   cluster_.links[node][first].latency_ms);
        return std::ilogb(std::max(ms, 0.01));
      };
      std::stable_sort(nodes.begin() + 1, nodes.end(), [&](size_t a, size_t b) {
        return away(a) != away(b) ? away(a) < away(b) : faster(a, b);
      });
      const auto end = nodes.begin() + static_cast<ptrdiff_t>(ranks);
      groups.emplace_back(nodes.begin(), end);
      nodes.erase(nodes.begin(), end);
      std::stable_sort(nodes.begin(), nodes.end(), faster);
    }
    return groups;
  }

  absl::StatusOr<v1::Plan> Choose(const std::vector<size_t>& candidates) {
    std::map<std::string, std::vector<size_t>> classes;
    size_t most = 0;
    for (const size_t i : candidates) {
      const PlannerNode& node = cluster_.nodes[i];
      if (node.ranks && TakesActivations(node, request_)) {
        classes[node.numerics].push_back(i);
        most = std::max(most, classes[node.numerics].size());
      }
    }
    std::optional<v1::Plan> best;
    absl::Status why = TooFew(most);
    for (const auto& [numerics, nodes] : classes) {
      absl::StatusOr<v1::Plan> plan = ChooseAmong(nodes, candidates);
      if (!plan.ok()) {
        why = nodes.size() >= request_.options.ranks() ? plan.status() : why;
      } else if (!best || plan->predicted_tokens_per_s() > best->predicted_tokens_per_s()) {
        best = *std::move(plan);
      }
    }
    return best ? absl::StatusOr<v1::Plan>(*std::move(best)) : why;
  }

  absl::Status TooFew(size_t nodes) const {
    return Error(absl::StatusCode::kResourceExhausted, "RANKS_NEED_NODES",
                 absl::StrCat("--ranks ", request_.options.ranks(), " needs ",
                              request_.options.ranks(), " CPU nodes that compute alike, and there ",
                              nodes == 1 ? "is " : "are ", nodes))
        .Limit(absl::StrCat("nodes=", nodes))
        .Hint("start more workers, or load the model with a smaller --ranks");
  }

  absl::StatusOr<v1::Plan> ChooseAmong(const std::vector<size_t>& nodes,
                                       const std::vector<size_t>& candidates) const {
    std::vector<RankGroup> of;
    for (std::vector<size_t>& grouped : Grouped(nodes)) {
      ASSIGN_OR_RETURN(RankGroup group, GroupOf(std::move(grouped), {}));
      of.push_back(std::move(group));
    }
    if (of.empty()) {
      return TooFew(nodes.size());
    }
    const RankGroups groups(cluster_, model_, std::move(of), kv_,
                            request_.options.max_batch_tokens());
    RETURN_IF_ERROR(CheckAskedKv(kv_, groups.firsts()));
    const std::optional<Chain> chain = ChainSearch(groups, layers_, kv_.goal).Run(kv_.pages);
    if (!chain) {
      return NoRoom(groups);
    }
    return PlanOfChain(cluster_, model_, request_, kv_, groups, *chain, candidates);
  }

  // Of a model that fits no chain of groups: what all of it would need on the first one.
  absl::Status NoRoom(const RankGroups& groups) const {
    const absl::Status first = CheckFits(groups, {0, 0, layers_});
    STRATA_CHECK(!first.ok());  // Else there is a chain.
    v1::ErrorDetail detail = DetailOf(first);
    detail.set_hint(
        "add nodes, load the model with a smaller --ranks, or lower --kv-tokens, "
        "--context or --sessions");
    return Annotate(StatusOf(detail),
                    absl::StrCat("the model does not fit on ", groups.size(), " groups of ",
                                 request_.options.ranks(), " nodes; all of it on one group"));
  }

  const PlannerCluster& cluster_;
  const PlannerModel& model_;
  const PlannerRequest& request_;
  const AskedKv kv_;
  const uint32_t layers_;
};

}  // namespace

bool AsksForRanks(const v1::LoadOptions& options) {
  return options.layers().empty()
             ? options.ranks() > 1
             : std::any_of(options.layers().begin(), options.layers().end(),
                           [](const auto& pin) { return pin.ranks_size() > 1; });
}

absl::StatusOr<v1::Plan> MakeRankedPlan(const PlannerCluster& cluster, const PlannerModel& model,
                                        const PlannerRequest& request) {
  return RankedPlanner(cluster, model, request).Run();
}

}  // namespace strata
