// The attention branch of a layer, and what of a batch it is computed by.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/footprint/mlx_limits.h"
#include "common/limits.h"
#include "common/numerics/math.h"
#include "common/status.h"
#include "mlx/ops.h"
#include "worker/backend/mlx/guard.h"
#include "worker/backend/mlx/latent.h"
#include "worker/backend/mlx/mlx_shard.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

// Rows of a span that are attended at once, whatever their scores take.
constexpr uint32_t kMostTileRows = 128;

}  // namespace

std::vector<uint32_t> MlxShard::Positions() const {
  std::vector<uint32_t> positions;
  positions.reserve(batch_.rows);
  for (const BatchItem& item : batch_.items) {
    for (uint32_t row = 0; row < item.rows; ++row) {
      positions.push_back(item.position + row);
    }
  }
  return positions;
}

const mx::array& MlxShard::SlotsOf(uint32_t index) {
  const KvShape shape = KvShapeOf(layer(index).attention);
  const auto found = slots_.find(shape);
  if (found != slots_.end()) {
    return found->second;
  }
  std::vector<uint32_t> slots;
  slots.reserve(batch_.rows * shape.heads);
  for (const BatchItem& item : batch_.items) {
    const PageTableView& table = item.tables[shape.group];
    for (uint32_t row = 0; row < item.rows; ++row) {
      const uint32_t position = item.position + row;
      const PageId page = table.pages[position / kPageTokens - table.first_page];
      for (uint32_t head = 0; head < shape.heads; ++head) {
        slots.push_back(SlotOf(page, shape.heads, head, position));
      }
    }
  }
  return slots_.emplace(shape, Indices(slots)).first->second;
}

const std::vector<SpanArrays>& MlxShard::SpansOf(uint32_t index) {
  const KvShape shape = KvShapeOf(layer(index).attention);
  const auto found = spans_.find(shape);
  if (found != spans_.end()) {
    return found->second;
  }
  const uint32_t window = spec_.model.kv_groups[shape.group].window;
  return spans_
      .emplace(shape, ArraysOf(KeySpansOf(batch_.items, shape.group, window), shape, window))
      .first->second;
}

const Rotation* MlxShard::RotationOf(uint32_t layer, bool neighbours) {
  const AttentionSpec& attention = this->layer(layer).attention;
  if (!attention.rotates || attention.rope.rotary_dim == 0) {
    return nullptr;
  }
  const uint64_t begin = RotaryOffset(spec_.model, layer, 0, spec_.context);
  const auto found = rotations_.find({begin, neighbours});
  if (found != rotations_.end()) {
    return &found->second;
  }
  const uint32_t half = attention.rope.rotary_dim / 2;
  const uint64_t second = RotaryOffset(spec_.model, layer, 1, spec_.context);
  std::vector<const float*> cosines;
  cosines.reserve(batch_.rows);
  for (const BatchItem& item : batch_.items) {
    const float* const table = rotary_.data() + (item.rotary_variant != 0 ? second : begin);
    for (uint32_t row = 0; row < item.rows; ++row) {
      cosines.push_back(table + uint64_t{item.position + row} * half);
    }
  }
  return &rotations_
              .emplace(std::pair(begin, neighbours),
                       RotationOfRows(cosines, uint64_t{spec_.context} * half, half, neighbours))
              .first->second;
}

MlxShard::Projected MlxShard::Project(uint32_t index, bool queries) {
  const LayerSpec& spec = layer(index);
  const LayerArrays& weights = arrays(index);
  const mx::array inputs = weights.attention_norm.has_value()
                               ? Normed(*residual_, *weights.attention_norm, spec.norm_eps)
                               : *residual_;
  if (spec.attention.latent.rank == 0) {
    return ProjectHeads(index, inputs, queries);
  }
  const Rotation* const rotation = RotationOf(index, /*neighbours=*/true);
  return {queries ? std::make_optional(
                        LatentQueries(blocks_, spec.attention, weights, inputs, rotation))
                  : std::nullopt,
          LatentKept(blocks_, spec.attention, weights, inputs, rotation), std::nullopt};
}

MlxShard::Projected MlxShard::ProjectHeads(uint32_t index, const mx::array& inputs, bool queries) {
  const LayerSpec& spec = layer(index);
  const AttentionSpec& attention = spec.attention;
  const LayerArrays& weights = arrays(index);
  const int rows = static_cast<int>(batch_.rows);
  const Rotation* const rotation = RotationOf(index, attention.rotates_neighbours);
  // A head at a time, or all at once: as wide as the weight.
  const auto heads_of = [&](mx::array x, const std::optional<mx::array>& norm, uint32_t heads) {
    const mx::Shape by_head = {rows, static_cast<int>(heads), static_cast<int>(attention.head_dim)};
    if (attention.qk_norm == QkNorm::kProjection) {
      x = Normed(x, *norm, spec.norm_eps);
    }
    x = mx::reshape(x, by_head);
    if (attention.qk_norm == QkNorm::kHead) {
      x = Normed(x, *norm, spec.norm_eps);
    }
    return rotation != nullptr ? Rotated(x, *rotation) : x;
  };
  const int keys = static_cast<int>(attention.kv_heads * attention.head_dim);
  Projected projected = {std::nullopt,
                         mx::reshape(heads_of(Multiply(blocks_, inputs, weights.k), weights.k_norm,
                                              attention.kv_heads),
                                     {rows, keys}),
                         Multiply(blocks_, inputs, weights.v)};
  if (!queries) {
    return projected;
  }
  projected.queries =
      heads_of(Multiply(blocks_, inputs, weights.q), weights.q_norm, attention.heads);
  if (attention.query_growth != 0) {
    std::vector<float> grown;
    for (const uint32_t position : Positions()) {
      grown.push_back(
          static_cast<float>(1.0 + double{attention.query_growth} *
                                       LogF64(1.0 + position / attention.query_growth_every)));
    }
    projected.queries = *projected.queries * mx::array(grown.data(), {rows, 1, 1}, mx::float32);
  }
  return projected;
}

absl::StatusOr<mx::array> MlxShard::AttendRows(uint32_t index, const mx::array& queries) {
  const AttentionSpec& attention = layer(index).attention;
  const uint32_t local = index - spec_.first_layer;
  const uint32_t most = blocks_.rows == 0 ? kMostTileRows : static_cast<uint32_t>(blocks_.rows);
  std::vector<mx::array> parts;
  for (const SpanArrays& span : SpansOf(index)) {
    const SpanKv kv =
        KvOf(attention, span, kv_.Keys(local, span.slices), kv_.Values(local, span.slices));
    uint64_t bytes = uint64_t{span.span.keys} * attention.KvNumbers() * 2 * sizeof(float);
    const uint32_t tile = TileRows(attention, span.span, kMlxScoreBytes, most);
    for (uint32_t done = 0; done < span.span.rows; done += tile) {
      const uint32_t rows = std::min(tile, span.span.rows - done);
      const int first = static_cast<int>(span.span.first_row + done);
      const mx::array q =
          mx::slice(queries, {first, 0, 0},
                    {first + static_cast<int>(rows), queries.shape(1), queries.shape(2)});
      ASSIGN_OR_RETURN(mx::array attended,
                       Attended(attention, span, done, rows, q, kv, arrays(index).sinks));
      bytes += 3 * uint64_t{rows} * attention.heads * span.span.keys * sizeof(float);
      parts.push_back(std::move(attended));
      if (graph_bytes_ + bytes > kMlxGraphBytes) {
        RETURN_IF_ERROR(Evaluate({parts.back(), queries}));
        bytes = 0;
      }
    }
    graph_bytes_ += bytes;
  }
  return parts.size() == 1 ? parts.front() : mx::concatenate(parts, 0);
}

absl::Status MlxShard::FinishAttention(uint32_t index, const mx::array& queries) {
  const LayerArrays& weights = arrays(index);
  ASSIGN_OR_RETURN(mx::array attended, AttendRows(index, queries));
  if (layer(index).attention.latent.rank != 0) {
    attended = LatentValues(blocks_, layer(index).attention, weights, attended);
  }
  AddBranch(layer(index), Multiply(blocks_, attended, weights.o), weights.after_attention_norm);
  const AttentionSpec& attention = layer(index).attention;
  const uint64_t row = 6 * uint64_t{attention.heads} * attention.head_dim +
                       4 * attention.KvNumbers() + 4 * uint64_t{spec_.model.hidden};
  return Account(batch_.rows * row * sizeof(float));
}

absl::Status MlxShard::Attention(uint32_t index) {
  RETURN_IF_ERROR(calls_.Layer(index));
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  return Guarded(absl::StrCat("attention of layer ", index), [&] {
    const Projected projected = Project(index, /*queries=*/true);
    kv_.Append(index - spec_.first_layer, SlotsOf(index), projected.keys, projected.values);
    return FinishAttention(index, *projected.queries);
  });
}

absl::Status MlxShard::AttentionOfSome(uint32_t index, std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(calls_.AttentionOfSome(index, rows, batch_.items));
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  return Guarded(absl::StrCat("attention of layer ", index), [&]() -> absl::Status {
    const Projected projected = Project(index, /*queries=*/!rows.empty());
    kv_.Append(index - spec_.first_layer, SlotsOf(index), projected.keys, projected.values);
    KeepRows(rows);
    if (rows.empty()) {
      return absl::OkStatus();
    }
    return FinishAttention(index, mx::take(*projected.queries, Indices(rows), 0));
  });
}

void MlxShard::KeepRows(std::span<const uint32_t> rows) {
  std::vector<BatchItem> kept;
  const BatchItem* item = batch_.items.data();
  for (uint32_t to = 0; to < rows.size(); ++to) {
    const uint32_t row = rows[to];
    while (row >= item->first_row + item->rows) {
      ++item;
    }
    if (to > 0 && rows[to - 1] >= item->first_row) {
      ++kept.back().rows;
    } else {
      kept.push_back(
          {to, 1, item->position + row - item->first_row, item->tables, item->rotary_variant});
    }
  }
  kept_ = std::move(kept);
  if (rows.empty()) {
    residual_.reset();
  } else {
    residual_ = mx::take(*residual_, Indices(rows), 0);
  }
  batch_ = {.rows = static_cast<uint32_t>(rows.size()), .token_ids = {}, .items = kept_};
  DropPlan();
}

}  // namespace strata::mlx
