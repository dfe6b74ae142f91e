#include "worker/backend/mlx/attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/model/window.h"
#include "common/status.h"
#include "mlx/fast.h"
#include "mlx/ops.h"
#include "worker/backend/mlx/kv_arrays.h"
#include "worker/backend/mlx/layer_ops.h"

namespace strata::mlx {
namespace {

namespace mx = ::mlx::core;

// Of the arrays of a batch's spans that are there once for all layers.
constexpr uint64_t kWholeMaskBytes = uint64_t{1} << 20;

mx::array Booleans(const std::vector<uint8_t>& values, mx::Shape shape) {
  return mx::array(values.data(), std::move(shape), mx::bool_);
}

// [rows, heads, width] as MLX attends: [1, heads, rows, width].
mx::array HeadsFirst(const mx::array& rows) {
  return mx::expand_dims(mx::transpose(rows, {1, 0, 2}), 0);
}

std::vector<int> DimensionsOf(const mx::array& array) {
  return {array.shape().begin(), array.shape().end()};
}

// Where scores are capped, which MLX's attention does not do. [1, heads, rows, width]
mx::array AttendCapped(const AttentionSpec& attention, const mx::array& queries,
                       const mx::array& keys, const mx::array& values, const mx::array& mask,
                       const std::optional<mx::array>& sinks) {
  const int heads = queries.shape(1);
  const int kv_heads = keys.shape(1);
  const int rows = queries.shape(2);
  const mx::array q = mx::reshape(queries * mx::array(attention.scale),
                                  {kv_heads, heads / kv_heads * rows, queries.shape(3)});
  const mx::array k = mx::squeeze(keys, 0);
  mx::array scores = mx::matmul(q, mx::transpose(k, {0, 2, 1}));
  scores = mx::reshape(SoftCapped(scores, attention.soft_cap), {1, heads, rows, keys.shape(2)});
  scores = mx::where(mask, scores, mx::array(std::numeric_limits<float>::lowest()));
  if (sinks.has_value()) {
    const mx::array sink =
        mx::broadcast_to(mx::reshape(*sinks, {1, heads, 1, 1}), {1, heads, rows, 1});
    scores = mx::concatenate({scores, sink}, 3);
  }
  mx::array weights = mx::softmax(scores, -1, /*precise=*/true);
  if (sinks.has_value()) {
    weights = mx::slice(weights, {0, 0, 0, 0}, {1, heads, rows, keys.shape(2)});
  }
  weights = mx::reshape(weights, {kv_heads, heads / kv_heads * rows, keys.shape(2)});
  return mx::reshape(mx::matmul(weights, mx::squeeze(values, 0)),
                     {1, heads, rows, values.shape(3)});
}

// bool [1, heads, keys, width], each number for itself.
mx::array KeptKeys(const KeySpan& span, uint32_t heads, uint32_t width) {
  const auto key_of = [&](uint32_t position) {
    return std::clamp(position, span.first_key, span.first_key + span.keys) - span.first_key;
  };
  const uint32_t begin = key_of(span.first_kept);
  const uint32_t end = key_of(span.length());
  std::vector<uint8_t> kept(size_t{heads} * span.keys * width);
  for (uint32_t head = 0; head < heads; ++head) {
    const auto keys = kept.begin() + size_t{head} * span.keys * width;
    std::fill(keys + size_t{begin} * width, keys + size_t{end} * width, 1);
  }
  return Booleans(
      kept, {1, static_cast<int>(heads), static_cast<int>(span.keys), static_cast<int>(width)});
}

// bool [1, 1, rows, keys]
mx::array SeenKeys(const KeySpan& span, uint32_t window) {
  std::vector<uint8_t> seen(size_t{span.rows} * span.keys);
  for (uint32_t row = 0; row < span.rows; ++row) {
    const uint32_t position = span.position + row;
    const auto keys = seen.begin() + size_t{row} * span.keys;
    std::fill(keys + (FirstSeen(position, window) - span.first_key),
              keys + (position + 1 - span.first_key), 1);
  }
  return Booleans(seen, {1, 1, static_cast<int>(span.rows), static_cast<int>(span.keys)});
}

// Of rows [first, first + rows) of the span.
mx::array MaskOf(const SpanArrays& arrays, uint32_t first, uint32_t rows) {
  const KeySpan& span = arrays.span;
  const int keys = static_cast<int>(span.keys);
  const int count = static_cast<int>(rows);
  if (arrays.mask.has_value()) {
    const int begin = static_cast<int>(first);
    return rows == span.rows
               ? *arrays.mask
               : mx::slice(*arrays.mask, {0, 0, begin, 0}, {1, 1, begin + count, keys});
  }
  const int first_key = static_cast<int>(span.first_key);
  const int position = static_cast<int>(span.position + first);
  const mx::array key_at =
      mx::reshape(mx::arange(first_key, first_key + keys, mx::int32), {1, 1, 1, keys});
  const mx::array row_at =
      mx::reshape(mx::arange(position, position + count, mx::int32), {1, 1, count, 1});
  const mx::array mask = mx::less_equal(key_at, row_at);
  return arrays.window == 0
             ? mask
             : mx::logical_and(
                   mask, mx::greater(key_at, row_at - mx::array(static_cast<int>(arrays.window))));
}

}  // namespace

KvShape KvShapeOf(const AttentionSpec& attention) {
  return {.group = attention.kv_group,
          .heads = KvHeadsOf(attention),
          .width = attention.latent.rank != 0 ? attention.latent.rank : attention.head_dim};
}

std::vector<SpanArrays> ArraysOf(std::vector<KeySpan> spans, const KvShape& shape,
                                 uint32_t window) {
  uint64_t bytes = 0;
  for (const KeySpan& span : spans) {
    bytes += uint64_t{span.keys} * (span.rows + shape.heads * shape.width);
  }
  const bool whole = bytes <= kWholeMaskBytes;
  std::vector<SpanArrays> arrays;
  arrays.reserve(spans.size());
  for (KeySpan& span : spans) {
    std::vector<uint32_t> slices;
    slices.reserve(shape.heads * span.pages.size());
    for (uint32_t head = 0; head < shape.heads; ++head) {
      for (const PageId page : span.pages) {
        slices.push_back(SliceOf(page, shape.heads, head));
      }
    }
    mx::array is_kept = KeptKeys(span, whole ? shape.heads : 1, whole ? shape.width : 1);
    std::optional<mx::array> mask =
        whole ? std::make_optional(SeenKeys(span, window)) : std::nullopt;
    arrays.push_back({.span = std::move(span),
                      .window = window,
                      .slices = Indices(slices),
                      .is_kept = std::move(is_kept),
                      .mask = std::move(mask)});
  }
  return arrays;
}

uint32_t TileRows(const AttentionSpec& attention, const KeySpan& span, uint64_t bytes,
                  uint32_t most) {
  const uint64_t row = uint64_t{attention.heads} * span.keys * sizeof(float);
  return static_cast<uint32_t>(std::clamp<uint64_t>(bytes / row, 1, std::max(1u, most)));
}

SpanKv KvOf(const AttentionSpec& attention, const SpanArrays& span, const mx::array& keys,
            const std::optional<mx::array>& values) {
  const int rank = static_cast<int>(attention.latent.rank);
  // What lies where there is no value may be no number, which a weight of 0 would not undo.
  const mx::array kept =
      mx::where(span.is_kept, values.has_value() ? *values : Columns(keys, 0, rank),
                mx::array(0.0f, keys.dtype()));
  return {mx::astype(keys, mx::float32), mx::astype(kept, mx::float32)};
}

absl::StatusOr<mx::array> Attended(const AttentionSpec& attention, const SpanArrays& span,
                                   uint32_t first, uint32_t rows, const mx::array& queries,
                                   const SpanKv& kv, const std::optional<mx::array>& sinks) {
  const mx::array q = HeadsFirst(queries);
  const auto& [k, v] = kv;
  const mx::array mask = MaskOf(span, first, rows);
  RETURN_IF_ERROR(CheckAttentionShapes(
      span.span, first, rows,
      {DimensionsOf(q), DimensionsOf(k), DimensionsOf(v), DimensionsOf(mask)}));
  const mx::array attended =
      attention.soft_cap != 0
          ? AttendCapped(attention, q, k, v, mask, sinks)
          : mx::fast::scaled_dot_product_attention(q, k, v, attention.scale, "array", mask, sinks);
  return mx::reshape(mx::transpose(mx::squeeze(attended, 0), {1, 0, 2}),
                     {static_cast<int>(rows), -1});
}

}  // namespace strata::mlx
