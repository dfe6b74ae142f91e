#include "worker/backend/cpu/shard/attender.h"

#include <algorithm>
#include <optional>

#include "common/check.h"
#include "common/limits.h"
#include "worker/backend/cpu/shard/attend_in_turn.h"

namespace strata::cpu {
namespace {

// Enough to share a page among, few enough to spread over threads.
uint32_t TileRows(uint32_t group) { return std::max(1u, kTileQueries / group); }

}  // namespace

absl::Status Attender::Allocate() {
  const ScratchSizes& sizes = stage_.sizes;
  RETURN_IF_ERROR(scratch_.Allocate(sizes.threads * sizes.attend * sizeof(float), "buffers"));
  RETURN_IF_ERROR(partial_.Allocate(sizes.partial * sizeof(float), "buffers"));
  tile_ends_.reserve(stage_.spec.max_batch_items);
  prefetched_.resize(sizes.threads);
  return absl::OkStatus();
}

void Attender::Attend(uint32_t layer, const QueryRows& rows) {
  if (SplitsSpans(layer)) {
    AttendBySpans(layer, rows);
  } else {
    AppendAndAttend(layer, rows, [](uint32_t, uint32_t) {});
  }
}

AttendArgs Attender::Tile(uint32_t layer, const QueryRows& queries, const BatchItem& item,
                          uint32_t first, uint32_t rows, uint32_t part) const {
  const AttentionSpec& attention = stage_.layer(layer).attention;
  const LatentSpec& latent = attention.latent;
  const uint32_t group = HeadsAtOnce(attention);
  const uint32_t local = layer - stage_.spec.first_layer;
  const KvLayout& layout = stage_.kv.layout(local);
  const PageTableView& table = item.tables[attention.kv_group];
  const bool kept = latent.rank != 0;
  const uint32_t head_dim = kept ? latent.kept() : attention.head_dim;
  const uint32_t value_dim = kept ? latent.rank : attention.head_dim;
  const size_t row = size_t{item.first_row} + first;
  const size_t head = size_t{part} * group;
  return AttendArgs{
      .q = queries.q + row * queries.q_stride + head * head_dim,
      .q_stride = queries.q_stride,
      .rows = rows,
      .group = group,
      .position = item.position + first,
      .window = WindowOf(layer),
      .head_dim = head_dim,
      .scale = attention.scale,
      .soft_cap = attention.soft_cap,
      .sinks = attention.sinks ? stage_.layer_weights(layer).sinks.data() + head : nullptr,
      .latent_values = latent.rank,
      .kv_f16 = stage_.kv_f16,
      .kv = stage_.kv.pages(local, kept ? 0 : part),
      .page_bytes = layout.head_bytes,
      .value_bytes = layout.value_bytes,
      .pages = table.pages.data(),
      .first_page = table.first_page,
      .out = queries.out + row * queries.out_stride + head * value_dim,
      .out_stride = queries.out_stride};
}

bool Attender::SplitsSpans(uint32_t layer) const {
  const size_t parts =
      stage_.layer(layer).attention.heads / HeadsAtOnce(stage_.layer(layer).attention);
  const size_t units = stage_.batch.items.size() * parts;
  const uint32_t window = WindowOf(layer);
  bool long_enough = false;
  for (const BatchItem& item : stage_.batch.items) {
    if (item.rows != 1) {
      return false;
    }
    long_enough = long_enough || item.position - FirstSeen(item.position, window) >= 2 * kSpanKeys;
  }
  // Whole heads need no sums of spans, where each thread gets as many.
  return long_enough && units % stage_.pool->threads() != 0 &&
         stage_.batch.items.size() <= MostItemsBySpans(stage_.pool->threads(), parts);
}

void Attender::AppendAndAttend(uint32_t layer, const QueryRows& rows,
                               absl::FunctionRef<void(uint32_t row, uint32_t part)> append) {
  const uint32_t group = HeadsAtOnce(stage_.layer(layer).attention);
  const uint32_t parts = stage_.layer(layer).attention.heads / group;
  const uint32_t tile_rows = TileRows(group);
  tile_ends_.clear();
  uint32_t tiles = 0;
  for (const BatchItem& item : stage_.batch.items) {
    tiles += (item.rows + tile_rows - 1) / tile_rows;
    tile_ends_.push_back(tiles);
  }
  const size_t units = size_t{tiles} * parts;
  std::fill(prefetched_.begin(), prefetched_.end(), PrefetchedPages{});
  stage_.pool->Split(units, [&](uint32_t thread, size_t begin, size_t end) {
    const auto args_of = [&](uint32_t unit) {
      const uint32_t tile = unit % tiles;
      const size_t index =
          std::upper_bound(tile_ends_.begin(), tile_ends_.end(), tile) - tile_ends_.begin();
      const BatchItem& item = stage_.batch.items[index];
      const uint32_t first = (tile - (index == 0 ? 0 : tile_ends_[index - 1])) * tile_rows;
      AttendArgs args =
          Tile(layer, rows, item, first, std::min(tile_rows, item.rows - first), unit / tiles);
      args.scratch = scratch(thread);
      return std::make_optional(args);
    };
    const auto before = [&](uint32_t unit) {
      // Where there is anything to append each tile is a row, and each row an item.
      append(unit % tiles, unit / tiles);
    };
    AttendInTurn(begin, end, units, &prefetched_[thread], args_of, before, stage_.kernels->attend);
  });
}

void Attender::AttendBySpans(uint32_t layer, const QueryRows& rows) {
  const AttentionSpec& attention = stage_.layer(layer).attention;
  const uint32_t group = HeadsAtOnce(attention);
  const uint32_t parts = attention.heads / group;
  const size_t value_dim = attention.latent.rank != 0 ? attention.latent.rank : attention.head_dim;
  const uint32_t items = static_cast<uint32_t>(stage_.batch.items.size());
  const uint32_t spans = SpansOf(stage_.spec.context);
  const uint32_t pairs = items * parts;
  const size_t pair_floats = size_t{group} * spans * PartialFloats(value_dim);
  STRATA_CHECK(pairs * pair_floats <= stage_.sizes.partial);
  const uint32_t window = WindowOf(layer);
  const auto first_span = [window](uint32_t position) {
    return FirstSeen(position, window) / kSpanKeys;
  };
  const auto tile = [&](uint32_t pair, uint32_t thread) {
    AttendArgs args = Tile(layer, rows, stage_.batch.items[pair / parts], 0, 1, pair % parts);
    args.scratch = scratch(thread);
    args.partial = partial_.as<float>() + pair * pair_floats;
    args.partial_spans = spans;
    return args;
  };
  uint32_t most = 0;  // Spans that one item sees.
  for (const BatchItem& item : stage_.batch.items) {
    most = std::max(most, SpansOf(item.position + 1) - first_span(item.position));
  }
  const size_t units = size_t{pairs} * most;
  std::fill(prefetched_.begin(), prefetched_.end(), PrefetchedPages{});
  stage_.pool->Split(units, [&](uint32_t thread, size_t begin, size_t end) {
    const auto args_of = [&](uint32_t unit) {
      AttendArgs args = tile(unit / most, thread);
      args.first_span = first_span(args.position) + unit % most;
      args.end_span = args.first_span + 1;
      const bool seen = args.first_span < SpansOf(args.position + 1);
      return seen ? std::make_optional(args) : std::nullopt;
    };
    const auto before = [](uint32_t) {};
    AttendInTurn(begin, end, units, &prefetched_[thread], args_of, before, stage_.kernels->attend);
  });
  stage_.pool->Split(pairs, [&](uint32_t thread, size_t begin, size_t end) {
    for (uint32_t pair = static_cast<uint32_t>(begin); pair < end; ++pair) {
      stage_.kernels->merge_spans(tile(pair, thread));
    }
  });
}

}  // namespace strata::cpu
