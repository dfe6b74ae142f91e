#include "coordinator/planner/rank_groups.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/footprint/footprint.h"

namespace strata {
namespace {

std::vector<size_t> FirstsOf(const std::vector<RankGroup>& groups) {
  std::vector<size_t> firsts;
  for (const RankGroup& group : groups) {
    firsts.push_back(group.nodes.front());
  }
  return firsts;
}

double ShareOf(const OutputRange& share) { return share.size() / static_cast<double>(kShareParts); }

}  // namespace

RankGroups::RankGroups(const PlannerCluster& cluster, const PlannerModel& model,
                       std::vector<RankGroup> groups, const AskedKv& kv, uint32_t max_batch_tokens,
                       uint32_t rows)
    : cluster_(cluster),
      model_(model),
      layers_(static_cast<uint32_t>(model.spec.layers.size())),
      rows_(rows),
      firsts_(cluster, model, FirstsOf(groups), max_batch_tokens, kv.context, kv.sessions,
              PlacementProblem::Links::kAll, rows) {
  STRATA_CHECK(model.of_rank != nullptr);
  for (RankGroup& of : groups) {
    STRATA_CHECK(!of.nodes.empty() && of.nodes.size() == of.shares.size());
    Group& group = groups_.emplace_back();
    group.of = std::move(of);
    if (group.of.nodes.size() > 1) {
      AddRanks(kv, max_batch_tokens, &group);
      AddGathers(&group);
    }
  }
}

void RankGroups::AddRanks(const AskedKv& kv, uint32_t max_batch_tokens, Group* group) const {
  const std::vector<RankOutputs> outputs = SplitOutputs(model_.spec, group->of.shares);
  const v1::KvDtype dtype = model_.kv_element_bytes == 4 ? v1::KV_DTYPE_F32 : v1::KV_DTYPE_F16;
  std::vector<PlannerWeights> weights;
  for (size_t r = 0; r < group->of.nodes.size(); ++r) {
    const PlannerNode& node = cluster_.nodes[group->of.nodes[r]];
    const RankFootprint footprint(FootprintOf(node.device), model_.spec,
                                  {.outputs = outputs[r], .first = r == 0});
    const PlannerWeights& of_rank = weights.emplace_back(model_.of_rank(group->of.shares, r));
    STRATA_CHECK(of_rank.layer_bytes.size() == layers_);
    Rank& rank = group->ranks.emplace_back();
    rank.embed = of_rank.embed_bytes;
    rank.head = of_rank.head_bytes;
    rank.pages.assign(model_.spec.kv_groups.size(), {0});
    for (uint32_t l = 0; l < layers_; ++l) {
      rank.weights.push_back(rank.weights.back() + of_rank.layer_bytes[l]);
      for (uint32_t g = 0; g < rank.pages.size(); ++g) {
        const bool in = model_.spec.layers[l].attention.kv_group == g;
        rank.pages[g].push_back(rank.pages[g].back() +
                                (in ? footprint.PageBytes(model_.spec, l, l, g, dtype) : 0));
      }
    }
    rank.buffers = footprint.BufferBytes(model_.spec, max_batch_tokens, false, kv.context);
    rank.last_buffers = footprint.BufferBytes(model_.spec, max_batch_tokens, true, kv.context);
  }
  AddLayerTimes(kv, weights, outputs, group);
}

// Ranks wait for each other within each layer, so that the slowest one's time is the layer's.
void RankGroups::AddLayerTimes(const AskedKv& kv, const std::vector<PlannerWeights>& weights,
                               const std::vector<RankOutputs>& outputs, Group* group) const {
  const auto slowest = [&](const auto& ms_of) {
    double ms = 0;
    for (size_t r = 0; r < weights.size(); ++r) {
      ms = std::max(ms, ms_of(r, cluster_.nodes[group->of.nodes[r]]));
    }
    return ms;
  };
  for (uint32_t l = 0; l < layers_; ++l) {
    const AttentionSpec& a = model_.spec.layers[l].attention;
    const uint32_t window = model_.spec.kv_groups[a.kv_group].window;
    const double keys = window == 0 ? kv.context / 2.0 : std::min<double>(kv.context / 2.0, window);
    const double ms = slowest([&](size_t r, const PlannerNode& node) {
      const LayerOutputs& own = outputs[r].layers[l];
      const double heads = own.heads.size() / std::max(1.0, static_cast<double>(a.heads));
      const double kv_heads = own.kv_heads.size() / std::max(1.0, static_cast<double>(a.kv_heads));
      const double kv_bytes =
          keys * static_cast<double>(a.KvNumbers()) * model_.kv_element_bytes * kv_heads;
      const double flops =
          rows_ * (ShareOf(group->of.shares[r]) * model_.layer_flops[l] +
                   heads * keys * 2.0 * a.heads * static_cast<double>(a.ProductsPerKey()));
      const double bytes = ReadByRows(static_cast<double>(weights[r].layer_read_bytes[l]),
                                      static_cast<double>(weights[r].layer_bytes[l]),
                                      model_.spec.layers[l].mlp, rows_);
      return std::max(MsAt(bytes + kv_bytes, node.read_bytes_per_s), MsAt(flops, node.flops_per_s));
    });
    group->layer_ms.push_back(group->layer_ms.back() + ms);
  }
  group->embed_ms =
      MsAt(rows_ * static_cast<double>(weights[0].embed_bytes) / std::max(model_.spec.vocab, 1u),
           cluster_.nodes[group->of.nodes[0]].read_bytes_per_s);
  group->head_ms = slowest([&](size_t r, const PlannerNode& node) {
    return std::max(
        MsAt(static_cast<double>(weights[r].head_bytes), node.read_bytes_per_s),
        MsAt(rows_ * ShareOf(group->of.shares[r]) * model_.head_flops, node.flops_per_s));
  });
}

// Each rank sends its columns to every other one; the slowest link and the rank that moves most
// bytes set the pace.
void RankGroups::AddGathers(Group* group) const {
  const std::vector<size_t>& nodes = group->of.nodes;
  PlannerLink worst = {.latency_ms = 0, .bytes_per_s = 1e12};
  double moved = 0;  // Of a row, by the rank that sends or takes most.
  for (size_t r = 0; r < nodes.size(); ++r) {
    const double share = ShareOf(group->of.shares[r]);
    moved = std::max({moved, 1 - share, share * static_cast<double>(nodes.size() - 1)});
    for (size_t other = 0; other < nodes.size(); ++other) {
      if (other != r) {
        const PlannerLink& link = cluster_.links[nodes[r]][nodes[other]];
        worst.latency_ms = std::max(worst.latency_ms, link.latency_ms);
        worst.bytes_per_s = std::min(worst.bytes_per_s, link.bytes_per_s);
      }
    }
  }
  const auto gather = [&](double columns, double part) {
    return worst.latency_ms + MsAt(rows_ * columns * sizeof(float) * part, worst.bytes_per_s);
  };
  const double hidden = model_.spec.hidden;
  for (uint32_t l = 0; l < layers_; ++l) {
    const LayerSpec& layer = model_.spec.layers[l];
    const double ffn = uint64_t{layer.mlp.active()} * layer.mlp.ffn + layer.mlp.shared_ffn;
    // Behind attention, gate times up, and at the end of both branches.
    const double ms = gather(static_cast<double>(layer.attention.OutputInputs()), moved) +
                      gather(ffn, moved) + 2 * gather(hidden, moved);
    group->gather_ms.push_back(group->gather_ms.back() + ms);
  }
  group->begin_gather_ms = gather(hidden, static_cast<double>(nodes.size() - 1));
  group->head_gather_ms = gather(model_.spec.vocab, 1 - ShareOf(group->of.shares[0]));
}

double RankGroups::GatherMs(size_t g, uint32_t begin, uint32_t end) const {
  const Group& group = groups_[g];
  if (group.ranks.empty()) {
    return 0;
  }
  return group.gather_ms[end] - group.gather_ms[begin] + group.begin_gather_ms +
         (end == layers_ ? group.head_gather_ms : 0);
}

double RankGroups::StageMs(size_t g, uint32_t begin, uint32_t end) const {
  const Group& group = groups_[g];
  if (group.ranks.empty()) {
    return firsts_.StageMs(g, begin, end);
  }
  return group.layer_ms[end] - group.layer_ms[begin] + GatherMs(g, begin, end) +
         (begin == 0 ? group.embed_ms : 0) + (end == layers_ ? group.head_ms : 0);
}

uint64_t RankGroups::WeightBytes(size_t g, size_t rank, uint32_t begin, uint32_t end) const {
  if (groups_[g].ranks.empty()) {
    return firsts_.WeightBytes(g, begin, end);
  }
  const Rank& of = groups_[g].ranks[rank];
  return of.weights[end] - of.weights[begin] + (begin == 0 ? of.embed : 0) +
         (end == layers_ ? of.head : 0);
}

uint64_t RankGroups::KvBytes(size_t g, size_t rank, uint32_t begin, uint32_t end, uint64_t pages,
                             size_t stages) const {
  if (groups_[g].ranks.empty()) {
    return firsts_.KvBytes(g, begin, end, pages, stages);
  }
  const Rank& of = groups_[g].ranks[rank];
  uint64_t bytes = 0;
  for (uint32_t group = 0; group < of.pages.size(); ++group) {
    bytes +=
        firsts_.GroupPages(group, pages, stages) * (of.pages[group][end] - of.pages[group][begin]);
  }
  return bytes;
}

uint64_t RankGroups::RankBytes(size_t g, size_t rank, uint32_t begin, uint32_t end,
                               uint64_t pages) const {
  const Group& group = groups_[g];
  const uint64_t kv = KvBytes(g, rank, begin, end, pages);
  if (group.ranks.empty()) {
    return firsts_.StageBytes(g, begin, end) + kv;  // Its own pages are none.
  }
  const Rank& of = group.ranks[rank];
  return WeightBytes(g, rank, begin, end) + kv + (end == layers_ ? of.last_buffers : of.buffers);
}

bool RankGroups::Fits(size_t g, uint32_t begin, uint32_t end, uint64_t pages) const {
  for (size_t rank = 0; rank < groups_[g].of.nodes.size(); ++rank) {
    if (RankBytes(g, rank, begin, end, pages) > node(g, rank).free_bytes) {
      return false;
    }
  }
  return firsts_.HostBytes(g, begin, end) <= node(g, 0).host_free_bytes;
}

}  // namespace strata
