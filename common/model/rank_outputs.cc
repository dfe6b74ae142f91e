#include "common/model/rank_outputs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/model/row_widths.h"
#include "common/status.h"

namespace strata {
namespace {

// As a step reads logits (worker/runner/stage_compute.cc).
constexpr uint64_t kLogitsAtOnceBytes = uint64_t{64} << 20;

// Where a place in [0, kShareParts] falls among `units`.
uint32_t At(uint64_t units, uint64_t part) {
  return static_cast<uint32_t>((units * part + kShareParts / 2) / kShareParts);
}

OutputRange InPanels(uint32_t outputs, OutputRange share) {
  const uint32_t panels = (outputs + kOutputPanel - 1) / kOutputPanel;
  return {std::min(outputs, At(panels, share.begin) * kOutputPanel),
          std::min(outputs, At(panels, share.end) * kOutputPanel)};
}

// With at least as many KV heads as ranks each is one rank's, with all query heads that see it.
void SplitByKvHeads(const AttentionSpec& attention, std::span<const OutputRange> shares,
                    uint32_t layer, std::vector<RankOutputs>* ranks) {
  const uint32_t group = attention.heads / attention.kv_heads;
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    LayerOutputs& to = (*ranks)[rank].layers[layer];
    to.kv_heads = {At(attention.kv_heads, shares[rank].begin),
                   At(attention.kv_heads, shares[rank].end)};
    to.heads = {to.kv_heads.begin * group, to.kv_heads.end * group};
  }
}

// With fewer each rank sees one, and the ranks of a KV head divide its query heads.
void SplitWithinKvHeads(const AttentionSpec& attention, std::span<const OutputRange> shares,
                        uint32_t layer, std::vector<RankOutputs>* ranks) {
  const uint64_t kv_heads = attention.kv_heads;
  const uint32_t group = attention.heads / attention.kv_heads;
  const size_t count = shares.size();
  std::vector<uint64_t> kv_head(count);
  for (size_t rank = 0; rank < count; ++rank) {
    // Where the middle of its share is, so that each KV head has a rank.
    const uint64_t middle =
        (uint64_t{shares[rank].begin} + shares[rank].end) * kv_heads / (uint64_t{2} * kShareParts);
    const uint64_t before = rank == 0 ? 0 : kv_head[rank - 1];
    const uint64_t behind = count - 1 - rank;  // Ranks, which take one new KV head each at most.
    const uint64_t least = std::max(before, kv_heads - 1 - std::min(kv_heads - 1, behind));
    const uint64_t most = rank == 0 ? 0 : std::min(before + 1, kv_heads - 1);
    kv_head[rank] = std::clamp(middle, least, std::max(least, most));
  }
  for (size_t first = 0; first < count;) {
    size_t end = first;
    while (end < count && kv_head[end] == kv_head[first]) {
      ++end;
    }
    const uint64_t from = shares[first].begin;
    const uint64_t parts = shares[end - 1].end - from;
    const uint32_t base = static_cast<uint32_t>(kv_head[first]) * group;
    const auto at = [&](uint64_t part) {
      return base + static_cast<uint32_t>((group * (part - from) + parts / 2) / parts);
    };
    for (size_t rank = first; rank < end; ++rank) {
      LayerOutputs& to = (*ranks)[rank].layers[layer];
      if (parts > 0) {
        to.heads = {at(shares[rank].begin), at(shares[rank].end)};
      } else {  // Shares too small to say who has more.
        to.heads = {rank == first ? base : base + group, base + group};
      }
      const auto kv = static_cast<uint32_t>(kv_head[first]);
      to.kv_heads = to.heads.empty() ? OutputRange{kv, kv} : OutputRange{kv, kv + 1};
    }
    first = end;
  }
}

}  // namespace

absl::StatusOr<std::vector<OutputRange>> SharesByWeight(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) {
    sum += weight > 0 ? weight : NAN;
  }
  if (weights.empty() || weights.size() > kMostRanks || !std::isfinite(sum)) {
    return Error(absl::StatusCode::kInvalidArgument, "RANKS_INVALID",
                 absl::StrCat("a stage of ", weights.size(),
                              " ranks, or one whose shares are no positive numbers"))
        .Limit(absl::StrCat("ranks=", kMostRanks))
        .Hint("give each of 1 to 8 ranks a share above 0");
  }
  std::vector<OutputRange> shares;
  double before = 0;
  for (const double weight : weights) {
    before += weight;
    const auto end = static_cast<uint32_t>(std::lround(before / sum * kShareParts));
    shares.push_back({shares.empty() ? 0 : shares.back().end, std::min(end, kShareParts)});
  }
  shares.back().end = kShareParts;
  return shares;
}

std::vector<RankOutputs> SplitOutputs(const ModelSpec& model, std::span<const OutputRange> shares) {
  STRATA_CHECK(!shares.empty() && shares.front().begin == 0 && shares.back().end == kShareParts);
  std::vector<RankOutputs> ranks(shares.size());
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    ranks[rank].hidden = InPanels(model.hidden, shares[rank]);
    ranks[rank].vocab = InPanels(model.vocab, shares[rank]);
    for (const LayerSpec& layer : model.layers) {
      ranks[rank].layers.push_back({.ffn = InPanels(layer.mlp.ffn, shares[rank]),
                                    .shared_ffn = InPanels(layer.mlp.shared_ffn, shares[rank])});
    }
  }
  for (uint32_t i = 0; i < model.layers.size(); ++i) {
    const AttentionSpec& attention = model.layers[i].attention;
    if (attention.kv_heads == 0) {
      continue;  // It has no heads to divide, and no backend computes it.
    }
    if (attention.kv_heads >= shares.size()) {
      SplitByKvHeads(attention, shares, i, &ranks);
    } else {
      SplitWithinKvHeads(attention, shares, i, &ranks);
    }
  }
  return ranks;
}

uint64_t MostGatheredBytes(const ModelSpec& model, uint32_t first_layer, uint32_t last_layer,
                           uint32_t rows, bool heads) {
  const RowWidths widths(model, first_layer, last_layer);
  uint64_t numbers =
      uint64_t{rows} * std::max({widths.hidden, widths.queries, widths.keys, widths.Within()});
  if (heads) {
    const uint64_t row_bytes = sizeof(float) * std::max<uint64_t>(1, model.vocab);
    const uint64_t wanted =
        std::min<uint64_t>(rows, std::max<uint64_t>(1, kLogitsAtOnceBytes / row_bytes));
    numbers = std::max(numbers, wanted * model.vocab);
  }
  return numbers * sizeof(float);
}

ModelSpec WithHeadsOf(const RankOutputs& rank, ModelSpec model) {
  for (size_t i = 0; i < model.layers.size(); ++i) {
    AttentionSpec& attention = model.layers[i].attention;
    attention.heads = rank.layers[i].heads.size();
    attention.kv_heads = rank.layers[i].kv_heads.size();
  }
  return model;
}

}  // namespace strata
