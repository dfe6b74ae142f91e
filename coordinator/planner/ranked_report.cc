#include "coordinator/planner/ranked_report.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/model/numerics_class.h"
#include "common/units.h"
#include "coordinator/planner/plan_words.h"

namespace strata {
namespace {

// Stages that get a sentence each, and nodes that are named.
constexpr size_t kMostNamed = 8;

class ChainWriter {
 public:
  ChainWriter(const PlannerCluster& cluster, const PlannerModel& model,
              const PlannerRequest& request, const AskedKv& kv, const RankGroups& groups,
              const Chain& chain, const std::vector<size_t>& candidates)
      : cluster_(cluster),
        model_(model),
        request_(request),
        kv_(kv),
        layers_(static_cast<uint32_t>(model.spec.layers.size())),
        groups_(groups),
        chain_(chain),
        candidates_(candidates) {}

  v1::Plan Write() const {
    v1::Plan plan;
    plan.set_goal(kv_.goal);
    v1::PlanPipeline& pipeline = *plan.add_pipelines();
    const uint64_t kv_tokens = kv_.goal == v1::PLAN_GOAL_CAPACITY
                                   ? (chain_.pages - kv_.sessions) * kPageTokens
                                   : kv_.tokens;
    pipeline.set_kv_tokens(kv_tokens);
    std::vector<LayerNumerics> kinds;
    for (size_t i = 0; i < chain_.stages.size(); ++i) {
      WriteStage(i, pipeline.add_stages());
      const PlacedStage& stage = chain_.stages[i];
      kinds.push_back({groups_.node(stage.node, 0).numerics, stage.begin, stage.end - 1});
    }
    const std::string numerics = NumericsOfStages(kinds);
    plan.mutable_numerics_class()->set_name(NumericsClassName(
        numerics, model_.weight_format, model_.head_format,
        TakesInt8Activations(numerics) ? model_.activations : "f32", model_.kv_format));
    plan.set_limiting_node(Limiting());
    const double in_flight =
        static_cast<double>(chain_.stages.size() + request_.max_in_flight_extra);
    const double alone = 1e3 / std::max(chain_.latency_ms, 1e-9);
    const double filled = std::min(in_flight * alone, 1e3 / std::max(chain_.slowest_ms, 1e-9));
    plan.set_predicted_tokens_per_s(kv_.goal == v1::PLAN_GOAL_THROUGHPUT ? filled : alone);
    plan.set_lower_bound_gap(Gap());
    Explain(kv_tokens, &plan);
    return plan;
  }

  void WriteStage(size_t i, v1::PlanStage* out) const {
    const PlacedStage& stage = chain_.stages[i];
    const RankGroup& group = groups_.group(stage.node);
    uint64_t weights = 0;
    uint64_t kv = 0;
    for (size_t r = 0; r < group.nodes.size(); ++r) {
      const PlannerNode& node = groups_.node(stage.node, r);
      v1::PlanRank& rank = *out->add_ranks();
      rank.set_node(node.name);
      rank.set_incarnation(node.incarnation);
      rank.set_device(node.device);
      rank.set_share_begin(group.shares[r].begin);
      rank.set_share_end(group.shares[r].end);
      const uint64_t rank_weights = groups_.WeightBytes(stage.node, r, stage.begin, stage.end);
      const uint64_t rank_kv = groups_.KvBytes(stage.node, r, stage.begin, stage.end, chain_.pages,
                                               chain_.stages.size());
      if (group.nodes.size() > 1) {
        rank.set_weight_bytes(rank_weights);
        rank.set_kv_bytes(rank_kv);
      }
      weights += rank_weights;
      kv += rank_kv;
    }
    out->set_first_layer(stage.begin);
    out->set_last_layer(stage.end - 1);
    out->set_weight_bytes(weights);
    out->set_kv_bytes(kv);
    for (uint32_t kv_group = 0; kv_group < model_.spec.kv_groups.size(); ++kv_group) {
      bool used = false;
      for (uint32_t l = stage.begin; l < stage.end; ++l) {
        used = used || model_.spec.layers[l].attention.kv_group == kv_group;
      }
      out->add_kv_pages(
          used ? groups_.firsts().GroupPages(kv_group, chain_.pages, chain_.stages.size()) : 0);
    }
    const size_t before = i == 0 ? groups_.size() : chain_.stages[i - 1].node;
    double ms = groups_.StageMs(stage.node, stage.begin, stage.end) +
                groups_.firsts().HopMs(before, stage.node);
    if (i + 1 == chain_.stages.size()) {
      ms += groups_.firsts().HopMs(stage.node, groups_.size());
    }
    out->set_predicted_ms(ms);
  }

  std::string Limiting() const {
    const auto slowest = std::max_element(chain_.stages.begin(), chain_.stages.end(),
                                          [&](const PlacedStage& a, const PlacedStage& b) {
                                            return groups_.StageMs(a.node, a.begin, a.end) <
                                                   groups_.StageMs(b.node, b.begin, b.end);
                                          });
    return groups_.node(slowest->node, 0).name;
  }

  // Over what no chain of these groups does better than: each layer on its fastest group, for
  // throughput all groups at once, for capacity all memory without a gap.
  double Gap() const {
    if (groups_.size() == 1) {
      return 0;
    }
    double least_ms = 0;
    uint64_t free = 0;
    uint64_t weights = 0;
    uint64_t page = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (size_t r = 0; r < groups_.group(g).nodes.size(); ++r) {
        free += groups_.node(g, r).free_bytes;
      }
    }
    for (uint32_t l = 0; l < layers_; ++l) {
      double ms = kNever;
      uint64_t bytes = std::numeric_limits<uint64_t>::max();
      uint64_t kv = bytes;
      for (size_t g = 0; g < groups_.size(); ++g) {
        uint64_t of_group = 0;
        uint64_t kv_of_group = 0;
        for (size_t r = 0; r < groups_.group(g).nodes.size(); ++r) {
          of_group += groups_.WeightBytes(g, r, l, l + 1);
          kv_of_group += groups_.KvBytes(g, r, l, l + 1, 1);
        }
        ms = std::min(ms, groups_.StageMs(g, l, l + 1) - groups_.GatherMs(g, l, l + 1));
        bytes = std::min(bytes, of_group);
        kv = std::min(kv, kv_of_group);
      }
      least_ms += ms;
      weights += bytes;
      page += kv;
    }
    const auto over = [](double value, double bound) {
      return bound > 0 ? std::max(0.0, value / bound - 1) : 0;
    };
    switch (kv_.goal) {
      case v1::PLAN_GOAL_THROUGHPUT:
        return over(chain_.slowest_ms, least_ms / static_cast<double>(groups_.size()));
      case v1::PLAN_GOAL_CAPACITY:
        return over(static_cast<double>(free > weights ? free - weights : 0) /
                        static_cast<double>(std::max<uint64_t>(page, 1)),
                    static_cast<double>(chain_.pages));
      default:
        return over(chain_.latency_ms, least_ms);
    }
  }

  void Explain(uint64_t kv_tokens, v1::Plan* plan) const {
    double gathers = 0;
    double stages_ms = 0;
    for (const PlacedStage& stage : chain_.stages) {
      gathers += groups_.GatherMs(stage.node, stage.begin, stage.end);
      stages_ms += groups_.StageMs(stage.node, stage.begin, stage.end);
    }
    plan->add_why(absl::StrCat("Goal ", GoalName(), ": one token takes ", MsText(chain_.latency_ms),
                               ": ", MsText(stages_ms - gathers), " of computing, ",
                               MsText(gathers), " in which ranks gather, and ",
                               MsText(std::max(0.0, chain_.latency_ms - stages_ms)), " on ",
                               chain_.stages.size() + 1, " hops, the coordinator's included."));
    for (size_t i = 0; i < std::min(chain_.stages.size(), kMostNamed); ++i) {
      plan->add_why(StageSentence(i));
    }
    if (chain_.stages.size() > kMostNamed) {
      plan->add_why(absl::StrCat(chain_.stages.size() - kMostNamed, " more stages likewise."));
    }
    plan->add_why(absl::StrCat("KV: ", kv_tokens, " tokens (", kv_.tokens, " wanted) are ",
                               chain_.pages, " pages of ", kPageTokens,
                               " on every rank, each of its own heads."));
    std::vector<std::string> idle;
    for (const size_t i : candidates_) {
      const bool used =
          std::any_of(chain_.stages.begin(), chain_.stages.end(), [&](const PlacedStage& stage) {
            const std::vector<size_t>& nodes = groups_.group(stage.node).nodes;
            return std::find(nodes.begin(), nodes.end(), i) != nodes.end();
          });
      if (!used) {
        idle.push_back(cluster_.nodes[i].name);
      }
    }
    if (!idle.empty()) {
      const size_t named = std::min(idle.size(), kMostNamed);
      plan->add_why(absl::StrCat(
          "Left out: ",
          absl::StrJoin(idle.begin(), idle.begin() + static_cast<ptrdiff_t>(named), ", "),
          idle.size() > named ? absl::StrCat(" and ", idle.size() - named, " more") : "",
          ". Each is in no group of ", request_.options.ranks(),
          " that saves time, or cannot compute together with others."));
    }
  }

  std::string GoalName() const {
    return kv_.goal == v1::PLAN_GOAL_THROUGHPUT ? "throughput"
           : kv_.goal == v1::PLAN_GOAL_CAPACITY ? "capacity"
                                                : "latency";
  }

  std::string StageSentence(size_t i) const {
    const PlacedStage& stage = chain_.stages[i];
    const RankGroup& group = groups_.group(stage.node);
    std::vector<std::string> parts;
    for (size_t r = 0; r < group.nodes.size(); ++r) {
      const PlannerNode& node = groups_.node(stage.node, r);
      const uint64_t taken = groups_.RankBytes(stage.node, r, stage.begin, stage.end, chain_.pages);
      parts.push_back(absl::StrFormat("%s %.1f %% (%s of %s are taken, and it reads %.1f GB/s)",
                                      node.name, 100.0 * group.shares[r].size() / kShareParts,
                                      FormatSize(taken), FormatSize(node.free_bytes),
                                      node.read_bytes_per_s / 1e9));
    }
    const double gathers = groups_.GatherMs(stage.node, stage.begin, stage.end);
    return absl::StrCat("Stage ", i, ", ", LayersText(stage), ", takes ",
                        MsText(groups_.StageMs(stage.node, stage.begin, stage.end)), ", ",
                        MsText(gathers),
                        " of it to gather; of its outputs have: ", absl::StrJoin(parts, ", "), ".");
  }

  const PlannerCluster& cluster_;
  const PlannerModel& model_;
  const PlannerRequest& request_;
  const AskedKv& kv_;
  const uint32_t layers_;
  const RankGroups& groups_;
  const Chain& chain_;
  const std::vector<size_t>& candidates_;
};

}  // namespace

v1::Plan PlanOfChain(const PlannerCluster& cluster, const PlannerModel& model,
                     const PlannerRequest& request, const AskedKv& kv, const RankGroups& groups,
                     const Chain& chain, const std::vector<size_t>& candidates) {
  return ChainWriter(cluster, model, request, kv, groups, chain, candidates).Write();
}

}  // namespace strata
