// Attention of a loaded stage: projections, rotation, appending to pages, and dividing the queries
// among the threads.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "worker/backend/cpu/shard/attend_in_turn.h"
#include "worker/backend/cpu/shard/cpu_shard.h"
#include "worker/backend/cpu/shard/rotate.h"

namespace strata::cpu {
namespace {

// Enough to share a page among, few enough to spread over threads.
uint32_t TileRows(uint32_t group) { return std::max(1u, kTileQueries / group); }

}  // namespace

absl::Status CpuShard::Attention(uint32_t layer) {
  RETURN_IF_ERROR(CheckLayer(layer));
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  const bool append = AppendsWhatItAttends(layer);
  if (append) {
    ProjectRows(layer, /*queries=*/true);
  } else {
    AppendKeysAndValues(layer, /*queries=*/true);
  }
  FinishAttention(layer, append);
  return absl::OkStatus();
}

absl::Status CpuShard::AttentionOfSome(uint32_t layer, std::span<const uint32_t> rows) {
  RETURN_IF_ERROR(CheckKept(layer, rows));
  if (batch_.rows == 0) {
    return absl::OkStatus();
  }
  AppendKeysAndValues(layer, /*queries=*/!rows.empty());
  KeepRows(rows);
  if (batch_.rows > 0) {
    FinishAttention(layer, /*append=*/false);
  }
  return absl::OkStatus();
}

bool CpuShard::AppendsWhatItAttends(uint32_t layer) const {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  return attention.latent.rank == 0 && attention.qk_norm != QkNorm::kProjection &&
         std::all_of(batch_.items.begin(), batch_.items.end(),
                     [](const BatchItem& item) { return item.rows == 1; }) &&
         !SplitsSpans(layer);
}

void CpuShard::AppendKeysAndValues(uint32_t layer, bool queries) {
  if (spec_.model.layers[layer].attention.latent.rank != 0) {
    AppendLatents(layer);
    return;
  }
  ProjectRows(layer, queries);
  RotateAndAppend(layer);
}

void CpuShard::ProjectRows(uint32_t layer, bool queries) {
  const LayerSpec& spec = spec_.model.layers[layer];
  const uint32_t rows = batch_.rows;
  const LayerWeights& weights = weights_.layers[layer - spec_.first_layer];
  const Inputs inputs =
      BranchInputs(spec, weights.attention_norm, {&weights.q, &weights.k, &weights.v});
  const std::array<MatmulArgs, 3> products = {
      Product(weights.q, rows, q_.as<float>(), sizes_.queries, false),
      Product(weights.k, rows, k_.as<float>(), sizes_.keys, false),
      Product(weights.v, rows, v_.as<float>(), sizes_.values, false)};
  Multiply(inputs, std::span(products).subspan(queries ? 0 : 1));
}

void CpuShard::FinishAttention(uint32_t layer, bool append) {
  const LayerSpec& spec = spec_.model.layers[layer];
  const LayerWeights& weights = weights_.layers[layer - spec_.first_layer];
  if (spec.attention.latent.rank != 0) {
    AttendLatents(layer);
  } else {
    Attend(layer, append);
  }
  FinishBranch(
      Rows(attended_.as<float>(), sizes_.queries, spec.attention.OutputInputs(), {&weights.o}),
      weights.o, spec, weights.after_attention_norm);
}

void CpuShard::KeepRows(std::span<const uint32_t> rows) {
  kept_.clear();
  const BatchItem* item = batch_.items.data();
  for (uint32_t to = 0; to < rows.size(); ++to) {
    const uint32_t row = rows[to];
    while (row >= item->first_row + item->rows) {
      ++item;
    }
    for (const auto& [buffer, width] :
         {std::pair(&residual_, sizes_.hidden), std::pair(&q_, sizes_.queries),
          std::pair(&absorbed_, sizes_.absorbed)}) {
      float* const values = buffer->as<float>();
      std::memmove(values + to * width, values + row * width, width * sizeof(float));
    }
    if (to > 0 && rows[to - 1] >= item->first_row) {
      ++kept_.back().rows;
    } else {
      kept_.push_back(
          {to, 1, item->position + row - item->first_row, item->tables, item->rotary_variant});
    }
  }
  batch_ = {.rows = static_cast<uint32_t>(rows.size()), .token_ids = {}, .items = kept_};
}

void CpuShard::AppendHeads(uint32_t layer, const BatchItem& item, uint32_t row, HeadRange heads) {
  const LayerSpec& spec = spec_.model.layers[layer];
  const AttentionSpec& attention = spec.attention;
  const uint32_t local = layer - spec_.first_layer;
  const LayerWeights& weights = weights_.layers[local];
  const uint32_t position = item.position + row - item.first_row;
  const uint32_t head_dim = attention.head_dim;
  const uint32_t group = attention.heads / attention.kv_heads;
  const size_t k_count = size_t{heads.end - heads.first} * head_dim;
  float* const q = q_.as<float>() + row * sizes_.queries + size_t{heads.first} * group * head_dim;
  float* const k = k_.as<float>() + row * sizes_.keys + size_t{heads.first} * head_dim;
  const float* const v = v_.as<float>() + row * sizes_.values + size_t{heads.first} * head_dim;
  const auto norm = [&](float* x, const std::vector<float>& weight, size_t count) {
    const float plus = spec.norm == NormKind::kRmsOnePlus ? 1.0f : 0.0f;
    // A head at a time, or all at once: as wide as the weight.
    for (size_t first = 0; first < count; first += weight.size()) {
      kernels_->rms_norm(x + first, weight.data(), weight.size(), spec.norm_eps, plus, x + first);
    }
  };
  if (attention.qk_norm != QkNorm::kNone) {
    norm(q, weights.q_norm, k_count * group);
    norm(k, weights.k_norm, k_count);
  }
  if (attention.rotates) {
    const uint32_t half = attention.rope.rotary_dim / 2;
    const float* const cosines =
        rotary_.as<float>() + rotary_at_[local][item.rotary_variant] + size_t{position} * half;
    const float* const sines = cosines + size_t{spec_.context} * half;
    const auto rotate = attention.rotates_neighbours ? RotateNeighbours : Rotate;
    for (size_t at = 0; at < k_count * group; at += head_dim) {
      rotate(cosines, sines, half, q + at);
    }
    for (size_t at = 0; at < k_count; at += head_dim) {
      rotate(cosines, sines, half, k + at);
    }
  }
  if (attention.query_growth != 0 && position >= attention.query_growth_every) {
    const float grown = QueryGrowth(attention.query_growth, attention.query_growth_every, position);
    for (size_t i = 0; i < k_count * group; ++i) {
      q[i] *= grown;
    }
  }
  const KvLayout& layout = kv_.layout(local);
  const PageTableView& table = item.tables[attention.kv_group];
  const PageId page = table.pages[position / kPageTokens - table.first_page];
  for (uint32_t head = heads.first; head < heads.end; ++head) {
    const size_t at = size_t{head - heads.first} * head_dim;
    kernels_->append_kv(k + at, v + at, head_dim, position % kPageTokens, kv_f16_,
                        kv_.pages(local, head) + page * layout.head_bytes, layout.value_bytes);
  }
}

void CpuShard::RotateAndAppend(uint32_t layer) {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  pool_->Split(
      batch_.rows,
      [&](size_t begin, size_t end) {
        const BatchItem* item = batch_.items.data();
        for (uint32_t row = static_cast<uint32_t>(begin); row < end; ++row) {
          while (row >= item->first_row + item->rows) {
            ++item;
          }
          if (attention.latent.rank != 0) {
            KeepLatents(layer, *item, row);
          } else {
            AppendHeads(layer, *item, row, {0, attention.kv_heads});
          }
        }
      },
      kSmallRows);
}

uint32_t CpuShard::HeadsAtOnce(uint32_t layer) const {
  return cpu::HeadsAtOnce(spec_.model.layers[layer].attention);
}

AttendArgs CpuShard::Tile(uint32_t layer, const BatchItem& item, uint32_t first, uint32_t rows,
                          uint32_t part) const {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  const LatentSpec& latent = attention.latent;
  const uint32_t group = HeadsAtOnce(layer);
  const uint32_t local = layer - spec_.first_layer;
  const KvLayout& layout = kv_.layout(local);
  const PageTableView& table = item.tables[attention.kv_group];
  const bool kept = latent.rank != 0;
  const uint32_t head_dim = kept ? latent.kept() : attention.head_dim;
  const uint32_t value_dim = kept ? latent.rank : attention.head_dim;
  const size_t q_stride = kept ? sizes_.absorbed : sizes_.queries;
  const size_t out_stride = kept ? sizes_.summed : sizes_.queries;
  const size_t row = size_t{item.first_row} + first;
  const size_t head = size_t{part} * group;
  return AttendArgs{
      .q = (kept ? absorbed_ : q_).as<float>() + row * q_stride + head * head_dim,
      .q_stride = q_stride,
      .rows = rows,
      .group = group,
      .position = item.position + first,
      .window = WindowOf(layer),
      .head_dim = head_dim,
      .scale = attention.scale,
      .soft_cap = attention.soft_cap,
      .sinks = attention.sinks ? weights_.layers[local].sinks.data() + head : nullptr,
      .latent_values = latent.rank,
      .kv_f16 = kv_f16_,
      .kv = kv_.pages(local, kept ? 0 : part),
      .page_bytes = layout.head_bytes,
      .value_bytes = layout.value_bytes,
      .pages = table.pages.data(),
      .first_page = table.first_page,
      .out = (kept ? summed_ : attended_).as<float>() + row * out_stride + head * value_dim,
      .out_stride = out_stride};
}

bool CpuShard::SplitsSpans(uint32_t layer) const {
  const size_t parts = spec_.model.layers[layer].attention.heads / HeadsAtOnce(layer);
  const size_t units = batch_.items.size() * parts;
  const uint32_t window = WindowOf(layer);
  bool long_enough = false;
  for (const BatchItem& item : batch_.items) {
    if (item.rows != 1) {
      return false;
    }
    long_enough = long_enough || item.position - FirstSeen(item.position, window) >= 2 * kSpanKeys;
  }
  // Whole heads need no sums of spans, where each thread gets as many.
  return long_enough && units % pool_->threads() != 0 &&
         batch_.items.size() <= MostItemsBySpans(pool_->threads(), parts);
}

void CpuShard::Attend(uint32_t layer, bool append) {
  if (SplitsSpans(layer)) {
    STRATA_CHECK(!append);
    AttendBySpans(layer);
  } else {
    AttendByTiles(layer, append);
  }
}

void CpuShard::AttendByTiles(uint32_t layer, bool append) {
  const uint32_t group = HeadsAtOnce(layer);
  const uint32_t parts = spec_.model.layers[layer].attention.heads / group;
  const uint32_t tile_rows = TileRows(group);
  tile_ends_.clear();
  uint32_t tiles = 0;
  for (const BatchItem& item : batch_.items) {
    tiles += (item.rows + tile_rows - 1) / tile_rows;
    tile_ends_.push_back(tiles);
  }
  const size_t units = size_t{tiles} * parts;
  std::fill(asked_.begin(), asked_.end(), AskedPages{});
  pool_->Split(units, [&](uint32_t thread, size_t begin, size_t end) {
    const auto args_of = [&](uint32_t unit) {
      const uint32_t tile = unit % tiles;
      const size_t index =
          std::upper_bound(tile_ends_.begin(), tile_ends_.end(), tile) - tile_ends_.begin();
      const BatchItem& item = batch_.items[index];
      const uint32_t first = (tile - (index == 0 ? 0 : tile_ends_[index - 1])) * tile_rows;
      AttendArgs args =
          Tile(layer, item, first, std::min(tile_rows, item.rows - first), unit / tiles);
      args.scratch = attend_.as<float>() + thread * sizes_.attend;
      return std::make_optional(args);
    };
    const auto before = [&](uint32_t unit) {
      if (append) {
        // Each tile is a row, and each row an item.
        const uint32_t row = unit % tiles;
        const uint32_t head = unit / tiles;
        AppendHeads(layer, batch_.items[row], row, {head, head + 1});
      }
    };
    AttendInTurn(begin, end, units, &asked_[thread], args_of, before, kernels_->attend);
  });
}

void CpuShard::AttendBySpans(uint32_t layer) {
  const AttentionSpec& attention = spec_.model.layers[layer].attention;
  const uint32_t group = HeadsAtOnce(layer);
  const uint32_t parts = attention.heads / group;
  const size_t value_dim = attention.latent.rank != 0 ? attention.latent.rank : attention.head_dim;
  const uint32_t items = static_cast<uint32_t>(batch_.items.size());
  const uint32_t spans = SpansOf(spec_.context);
  const uint32_t pairs = items * parts;
  const size_t pair_floats = size_t{group} * spans * PartialFloats(value_dim);
  STRATA_CHECK(pairs * pair_floats <= sizes_.partial);
  const uint32_t window = WindowOf(layer);
  const auto first_span = [window](uint32_t position) {
    return FirstSeen(position, window) / kSpanKeys;
  };
  const auto tile = [&](uint32_t pair, uint32_t thread) {
    AttendArgs args = Tile(layer, batch_.items[pair / parts], 0, 1, pair % parts);
    args.scratch = attend_.as<float>() + thread * sizes_.attend;
    args.partial = partial_.as<float>() + pair * pair_floats;
    args.partial_spans = spans;
    return args;
  };
  uint32_t most = 0;  // Spans that one item sees.
  for (const BatchItem& item : batch_.items) {
    most = std::max(most, SpansOf(item.position + 1) - first_span(item.position));
  }
  const size_t units = size_t{pairs} * most;
  std::fill(asked_.begin(), asked_.end(), AskedPages{});
  pool_->Split(units, [&](uint32_t thread, size_t begin, size_t end) {
    const auto args_of = [&](uint32_t unit) {
      AttendArgs args = tile(unit / most, thread);
      args.first_span = first_span(args.position) + unit % most;
      args.end_span = args.first_span + 1;
      const bool seen = args.first_span < SpansOf(args.position + 1);
      return seen ? std::make_optional(args) : std::nullopt;
    };
    const auto before = [](uint32_t) {};
    AttendInTurn(begin, end, units, &asked_[thread], args_of, before, kernels_->attend);
  });
  pool_->Split(pairs, [&](uint32_t thread, size_t begin, size_t end) {
    for (uint32_t pair = static_cast<uint32_t>(begin); pair < end; ++pair) {
      kernels_->merge_spans(tile(pair, thread));
    }
  });
}

}  // namespace strata::cpu
